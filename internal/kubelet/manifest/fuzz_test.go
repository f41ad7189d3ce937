package manifest

import (
	"reflect"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
)

// FuzzManifest reads any bytes: what is taken for a pod the library takes for the
// same one.
func FuzzManifest(f *testing.F) {
	for _, text := range []string{
		web, strings.Replace(web, "name: web", "Name: web", 1), strings.Replace(web, "kind", "KIND", 1), web + "\n---\n" + web, web[:40], "", "- a", "{}", "kind: Pod", "&a [*a]",
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","annotations":{"x":"y"}},"spec":{"hostNetwork":true,"containers":[{"name":"c","image":"i","resources":{"limits":{"cpu":0.5}}}]}}`,
		strings.Replace(web, "name: c", "name: 012", 1), strings.Replace(web, "{a: b}", "{a: b, a: c}", 1), strings.Replace(web, "spec", "status: {phase: Failed}, spec", 1),
	} {
		f.Add([]byte(text))
	}
	library := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	d := &Dir{Path: "/manifests", Node: "N1"}
	f.Fuzz(func(t *testing.T, data []byte) {
		pod, err := d.parse("/manifests/a.yaml", data)
		if err != nil {
			return
		}
		back, _, err := library.Decode(data, nil, nil)
		want, ok := back.(*v1.Pod)
		if err != nil || !ok {
			t.Fatalf("got pod %s, want %v", pod.Name, err)
		}
		if pod.Name != want.Name+"-n1" || pod.Spec.NodeName != "N1" || len(pod.UID) != 32 || !reflect.DeepEqual(pod.Labels, want.Labels) || len(pod.Spec.Containers) != len(want.Spec.Containers) {
			t.Fatalf("got %v, want %v", pod, want)
		}
		for i, c := range pod.Spec.Containers {
			if w := want.Spec.Containers[i]; c.Name != w.Name || c.Image != w.Image || !reflect.DeepEqual(c.Command, w.Command) || !reflect.DeepEqual(c.Env, w.Env) {
				t.Fatalf("container %d: got %v, want %v", i, c, w)
			}
		}
		if again, err := d.parse("/manifests/a.yaml", data); err != nil || again.UID != pod.UID {
			t.Fatalf("the same file makes another pod: %v", err)
		}
	})
}
