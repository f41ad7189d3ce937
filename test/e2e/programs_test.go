package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kemudi/kemudi/internal/ociimage"
	"github.com/kemudi/kemudi/test/image"
	"github.com/kemudi/kemudi/test/wait"
)

// programsDir names the folder with the programs of test/programs, which make programs builds.
const programsDir = "KEMUDI_PROGRAMS"

// TestMetricsServerTakesThePlaceOfOurs installs metrics-server by its project's own manifests: it measures pods of this
// node from a pod of its own, and is asked in place of what is built in, until it is taken away.
func TestMetricsServerTakesThePlaceOfOurs(t *testing.T) {
	dir := os.Getenv(programsDir)
	if dir == "" {
		t.Skip(programsDir + ": not told; make programs builds it, which takes minutes")
	}
	c := newCluster(t)
	paths, err := image.Write(filepath.Join(c.Dir, "images"), []ociimage.Image{{
		Names: []string{"gcr.io/k8s-staging-metrics-server/metrics-server:master"}, Entrypoint: []string{"/metrics-server"},
		Files: []ociimage.File{{Path: "/metrics-server", Source: filepath.Join(dir, "metrics-server"), Mode: 0o755}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	c.importImages(t, paths...)
	k := c.kubectl().in(c.namespace(t))
	k.apply(t, `
apiVersion: v1
kind: Pod
metadata: {name: busy}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: kemudi.local/busybox:1, command: [sh, -c, "while :; do :; done"], resources: {requests: {cpu: 10m}, limits: {cpu: 100m}}}]
`)
	k.do(t, "wait", "pod/busy", "--for=condition=Ready", patient)
	measured := func() error {
		for _, what := range [][]string{{"top", "node", "--no-headers"}, {"top", "pod", "busy", "--no-headers"}} {
			if o := k.try(t, "", what...); o.code != 0 || !strings.Contains(o.stdout, "Mi") {
				return fmt.Errorf("%v: got %q", what, o.all())
			}
		}
		return nil
	}
	wait.Until(t, measured)

	manifests := filepath.Join(dir, "metrics-server.d", "base")
	all := k.in("")
	if o := all.try(t, "", "apply", "-k", manifests); o.code != 0 {
		t.Fatal(o.all())
	}
	all.do(t, "wait", "-n", "kube-system", "deployment/metrics-server", "--for=condition=Available", patient)
	k.do(t, "wait", "apiservice/v1beta1.metrics.k8s.io", "--for=condition=Available", patient)
	wait.Until(t, func() error {
		// By the window it is known who has measured: it looks every 15 s.
		o := k.try(t, "", "get", "--raw", "/apis/metrics.k8s.io/v1beta1/namespaces/"+k.namespace+"/pods")
		if o.code != 0 || !strings.Contains(o.stdout, `"name":"busy"`) || !strings.Contains(o.stdout, `"window":"1`) {
			return fmt.Errorf("got %s", o.all())
		}
		return measured()
	})
	if got := k.do(t, "get", "--raw", "/apis/metrics.k8s.io"); strings.Contains(got, "metrics.k8s.io/v1\"") {
		t.Errorf("clients are told of a version that it does not have: %s", got)
	}
	for line := range strings.Lines(all.do(t, "logs", "-n", "kube-system", "deployment/metrics-server")) {
		if strings.Contains(line, "orbidden") || strings.Contains(line, "Failed to scrape") || strings.Contains(line, "nauthorized") {
			t.Errorf("metrics-server says: %s", line)
		}
	}

	if o := all.try(t, "", "delete", "-k", manifests); o.code != 0 {
		t.Fatal(o.all())
	}
	wait.Until(t, func() error {
		if got := k.do(t, "get", "--raw", "/apis/metrics.k8s.io"); !strings.Contains(got, `"metrics.k8s.io/v1"`) {
			return errors.New("what is built in is not back: " + got)
		}
		return measured()
	})
	k.do(t, "delete", "pod", "busy")
	c.wantNothing(t, k.namespace)
}
