package e2e

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/kemudi/kemudi/internal/up"
	"github.com/kemudi/kemudi/test/wait"
)

// TestEphemeralClusterLeavesNothing runs a pod with a volume in a cluster that is in memory, twice,
// and then kills the server: the next one finds nothing of it.
func TestEphemeralClusterLeavesNothing(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	dirs := []string{"--data-dir", m.DataDir, "--run-dir", m.RunDir}
	command := func(args ...string) string {
		t.Helper()
		o := m.run(t.Context(), nil, append(append([]string{m.bin, args[0]}, dirs...), args[1:]...)...)
		if o.code != 0 {
			t.Fatalf("%v: exit code %d\n%s", args, o.code, o.all())
		}
		return o.stdout
	}
	web := m.images[slices.IndexFunc(m.images, func(file string) bool { return filepath.Base(file) == "web-1.tar" })]
	c := &cluster{machine: m}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log:\n%s", tail(up.LogFile(m.DataDir), 40))
		}
	})
	wantNothing := func(when string) {
		t.Helper()
		for _, name := range []string{"etcd", "ephemeral", "kubelet/pods", "kubelet/volumes", "podnet", "containerd"} {
			if _, err := os.Stat(filepath.Join(m.DataDir, name)); err == nil {
				t.Errorf("%s: there is %s", when, name)
			}
		}
		after := m.look(t)
		maps.DeleteFunc(after, func(line string, _ bool) bool { return strings.HasPrefix(line, "file ") }) // keys and the log stay
		m.before.compare(t, after)
	}
	for range 2 {
		command("up", "--kubeconfig", "", "--ephemeral", "--import", web, "--", "--pod-logs-dir", m.LogsDir)
		c.connect(t)
		k := c.kubectl()
		if got := k.do(t, "get", "pods", "-A", "-o", "name"); got != "" {
			t.Errorf("got pods %q of a new cluster", got)
		}
		k.apply(t, ephemeralPod)
		k.do(t, "wait", "--for=condition=Ready", "pod/web", patient)
		if got := command("status"); !strings.Contains(got, "state    in memory: gone when the server stops") {
			t.Errorf("status: got %q", got)
		}
		if got := command("down"); !strings.Contains(got, "the cluster was in memory, and is gone with all that ran in it") {
			t.Errorf("down: got %q", got)
		}
		wantNothing("after down")
	}

	command("up", "--kubeconfig", "", "--ephemeral", "--import", web, "--", "--pod-logs-dir", m.LogsDir)
	c.connect(t)
	k := c.kubectl()
	k.apply(t, ephemeralPod)
	k.do(t, "wait", "--for=condition=Ready", "pod/web", patient)
	pid, err := up.Running(m.RunDir)
	if err != nil || pid == 0 {
		t.Fatalf("got process %d, %v", pid, err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, func() error { return gone(pid) })
	command("up", "--kubeconfig", "", "--", "--pod-logs-dir", m.LogsDir) // one that stays
	c.connect(t)
	if got := c.kubectl().do(t, "get", "pods", "-A", "-o", "name"); got != "" {
		t.Errorf("got pods %q of the cluster that has crashed", got)
	}
	for line := range m.look(t) {
		if strings.HasPrefix(line, "process ") && strings.Contains(line, "shim") {
			t.Errorf("there is %s of the cluster that has crashed", line)
		}
	}
	o := m.run(t.Context(), nil, append([]string{m.bin, "up", "--ephemeral", "--kubeconfig", ""}, dirs...)...)
	if o.code != 1 || !strings.Contains(o.stderr, "the cluster that runs here") {
		t.Errorf("up --ephemeral beside one that stays: got %+v", o)
	}
	command("down")
	o = m.run(t.Context(), nil, append([]string{m.bin, "up", "--ephemeral", "--kubeconfig", ""}, dirs...)...)
	if o.code != 1 || !strings.Contains(o.stderr, "has the store of a cluster, which stays as it is") {
		t.Errorf("up --ephemeral in its place: got %+v", o)
	}
}

const ephemeralPod = `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: web, image: "kemudi.local/web:1", volumeMounts: [{name: v, mountPath: /v}], readinessProbe: {httpGet: {path: /readyz, port: 8080}, periodSeconds: 1}}
  volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]
`
