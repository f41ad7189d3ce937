package volumes

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/admission/admissiontest"
	"github.com/kemudi/kemudi/internal/resource"
)

func TestClaimsWithoutAClassGetTheNewestDefault(t *testing.T) {
	const marked = "annotations: {storageclass.kubernetes.io/is-default-class: 'true'}"
	classes := []string{
		"StorageClass: {metadata: {name: slow, creationTimestamp: '2026-01-01T00:00:00Z', " + marked + "}, provisioner: example.com/x}",
		"StorageClass: {metadata: {name: fast, creationTimestamp: '2026-01-02T00:00:00Z', " + marked + "}, provisioner: example.com/x}",
		"StorageClass: {metadata: {name: more, creationTimestamp: '2026-01-02T00:00:00Z', " + marked + "}, provisioner: example.com/x}",
		"StorageClass: {metadata: {name: newest, creationTimestamp: '2026-01-03T00:00:00Z'}, provisioner: example.com/x}",
	}
	for _, q := range []struct {
		name    string
		classes []string
		claim   string
		want    string
	}{
		{"no class", classes, "metadata: {namespace: team, name: c}", "fast"},
		{"class of its own", classes, "metadata: {namespace: team, name: c}, spec: {storageClassName: slow}", "slow"},
		{"no class wanted", classes, "metadata: {namespace: team, name: c}, spec: {storageClassName: ''}", ""},
		{"class by annotation", classes, "metadata: {namespace: team, name: c, annotations: {volume.beta.kubernetes.io/storage-class: slow}}", "unset"},
		{"no default", classes[3:], "metadata: {namespace: team, name: c}", "unset"},
	} {
		w := admissiontest.New(t, q.classes...)
		a := admissiontest.Request(t, "PersistentVolumeClaim: {"+q.claim+"}", "")
		if refused := admissiontest.Run(t, admission.NewChain(NewDefaultClass(w.Options())), a); refused != "" {
			t.Errorf("%s: refused: %s", q.name, refused)
		}
		got := "unset"
		if name := a.Object.(*corev1.PersistentVolumeClaim).Spec.StorageClassName; name != nil {
			got = *name
		}
		if got != q.want {
			t.Errorf("%s: got class %s, want %s", q.name, got, q.want)
		}
	}
}

func TestClaimsAndVolumesAreProtectedFromTheStart(t *testing.T) {
	for _, q := range []struct{ obj, want string }{
		{"PersistentVolumeClaim: {metadata: {namespace: team, name: c}}", "kubernetes.io/pvc-protection"},
		{"PersistentVolumeClaim: {metadata: {namespace: team, name: c, finalizers: [a/b, kubernetes.io/pvc-protection]}}", "a/b kubernetes.io/pvc-protection"},
		{"PersistentVolume: {metadata: {name: v}}", "kubernetes.io/pv-protection"},
		{"VolumeAttributesClass: {metadata: {name: v}}", "kubernetes.io/vac-protection"},
		{"ConfigMap: {metadata: {namespace: team, name: c}}", ""},
	} {
		a := admissiontest.Request(t, q.obj, "")
		admissiontest.Run(t, admission.NewChain(NewProtection()), a)
		if got := strings.Join(a.Object.(resource.Object).GetFinalizers(), " "); got != q.want {
			t.Errorf("%s: got finalizers %q, want %q", q.obj, got, q.want)
		}
	}
}

func TestOnlyClaimsOfGrowingClassesGrow(t *testing.T) {
	w := admissiontest.New(t,
		"StorageClass: {metadata: {name: grows}, provisioner: example.com/x, allowVolumeExpansion: true}",
		"StorageClass: {metadata: {name: stays}, provisioner: example.com/x}")
	claim := func(class, size, phase string) string {
		return "PersistentVolumeClaim: {metadata: {namespace: team, name: c}, spec: {storageClassName: " + class +
			", resources: {requests: {storage: " + size + "}}}, status: {phase: " + phase + "}}"
	}
	const never = `persistentvolumeclaims "c" is forbidden: only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize`
	for _, q := range []struct{ name, now, old, want string }{
		{"grows", claim("grows", "2Gi", "Bound"), claim("grows", "1Gi", "Bound"), ""},
		{"as before", claim("stays", "1Gi", "Bound"), claim("stays", "1Gi", "Bound"), ""},
		{"shrinks, which validation refuses", claim("stays", "1Gi", "Bound"), claim("stays", "2Gi", "Bound"), ""},
		{"stays", claim("stays", "2Gi", "Bound"), claim("stays", "1Gi", "Bound"), never},
		{"class that is gone", claim("gone", "2Gi", "Bound"), claim("gone", "1Gi", "Bound"), never},
		{"no class", claim("''", "2Gi", "Bound"), claim("''", "1Gi", "Bound"), never},
		{"not bound", claim("grows", "2Gi", "Pending"), claim("grows", "1Gi", "Pending"), `persistentvolumeclaims "c" is forbidden: Only bound persistent volume claims can be expanded`},
	} {
		a := admissiontest.Request(t, q.now, q.old)
		if got := admissiontest.Run(t, admission.NewChain(NewResize(w.Options())), a); got != q.want {
			t.Errorf("%s: got %q, want %q", q.name, got, q.want)
		}
	}
}
