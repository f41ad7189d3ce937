package manifest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

const web = `{apiVersion: v1, kind: Pod, metadata: {name: web, labels: {a: b}}, spec: {containers: [{name: c, image: x}]}}`

func TestManifestsBecomePodsOfTheNode(t *testing.T) {
	dir := t.TempDir()
	d := &Dir{Path: dir, Node: "n1"}
	write(t, dir, "web.yaml", web)
	write(t, dir, ".hidden.yaml", web)
	write(t, dir, "zz-same.yaml", web)
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	pods, err := d.Load()
	if err == nil || !strings.Contains(err.Error(), "pod default/web-n1 is in web.yaml already") || len(pods) != 1 {
		t.Fatalf("got %d pods, %v, want one and why the other is left out", len(pods), err)
	}
	pod := pods[0]
	if pod.Name != "web-n1" || pod.Namespace != "default" || pod.Spec.NodeName != "n1" || pod.UID == "" || string(pod.UID) != pod.Annotations[AnnotationHash] ||
		pod.Annotations[AnnotationSource] != "file" || pod.Annotations[AnnotationSeen] == "" || pod.Spec.RestartPolicy != v1.RestartPolicyAlways || pod.Labels["a"] != "b" {
		t.Errorf("got %+v", pod)
	}
	again, _ := d.Load()
	if again[0] != pod {
		t.Error("the same file makes another pod")
	}
	write(t, dir, "web.yaml", strings.Replace(web, "image: x", "image: other", 1))
	changed, _ := d.Load()
	if changed[0].UID == pod.UID {
		t.Error("the changed file makes the same pod")
	}
	write(t, dir, "web.yaml", web[:40]) // half written
	half, err := d.Load()
	if err == nil || len(half) == 0 || half[0] != changed[0] {
		t.Errorf("half written file: got %v, %v, want the pod as it was", half, err)
	}
	if err := os.Remove(filepath.Join(dir, "web.yaml")); err != nil {
		t.Fatal(err)
	}
	if left, err := d.Load(); err != nil || len(left) != 1 || left[0].UID == pod.UID {
		t.Errorf("without the first file: got %v, %v, want the pod of the second", left, err)
	}
}

func TestManifestsThatCannotRunAreRefusedWithTheReason(t *testing.T) {
	for text, want := range map[string]string{
		`{apiVersion: v1, kind: Service, metadata: {name: x}}`:                                                                                                             "want v1 Pod",
		`{apiVersion: v1, kind: PodTemplate, metadata: {name: x}}`:                                                                                                         "want v1 Pod",
		`{apiVersion: v1, kind: Pod, spec: {containers: [{name: c, image: x}]}}`:                                                                                           "metadata.name: Required value",
		`{apiVersion: v1, kind: Pod, metadata: {name: X}, spec: {containers: [{name: c, image: x}]}}`:                                                                      "metadata.name",
		`{apiVersion: v1, kind: Pod, metadata: {name: x}, spec: {containers: []}}`:                                                                                         "spec.containers: Required value",
		`{apiVersion: v1, kind: Pod, metadata: {name: x}, spec: {contianers: []}}`:                                                                                         `unknown field "contianers"`,
		`{apiVersion: v1, kind: Pod, metadata: {name: x}, spec: {serviceAccountName: a, containers: [{name: c, image: x}]}}`:                                               "may not reference service accounts",
		`{apiVersion: v1, kind: Pod, metadata: {name: x}, spec: {volumes: [{name: v, secret: {secretName: s}}], containers: [{name: c, image: x}]}}`:                       "can not reference API objects",
		`{apiVersion: v1, kind: Pod, metadata: {name: x}, spec: {containers: [{name: c, image: x, envFrom: [{configMapRef: {name: some}}]}]}}`:                             "can not reference API objects",
		`{apiVersion: v1, kind: Pod, metadata: {name: x}, spec: {imagePullSecrets: [{name: s}], containers: [{name: c, image: x}]}}`:                                       "can not reference API objects",
		`{apiVersion: v1, kind: Pod, metadata: {name: x}, spec: {resourceClaims: [{name: r, resourceClaimName: s}], containers: [{name: c, image: x}]}}`:                   "references resourceclaims",
		`{apiVersion: v1, kind: Pod, metadata: {name: x}, spec: {volumes: [{name: v, cephfs: {monitors: [m], secretRef: {name: s}}}], containers: [{name: c, image: x}]}}`: "references secrets",
		`{apiVersion: v1, kind: Pod, metadata: {name: x}, spec: {volumes: [{name: v, csi: {driver: d.io}}], containers: [{name: c, image: x}]}}`:                           "references csidrivers",
		"\x00\x01": "yaml",
	} {
		dir := t.TempDir()
		write(t, dir, "x.yaml", text)
		pods, err := (&Dir{Path: dir, Node: "n1"}).Load()
		if err == nil || !strings.Contains(err.Error(), want) || len(pods) != 0 {
			t.Errorf("%s: got %d pods, %v, want %q", text, len(pods), err, want)
		}
	}
}
