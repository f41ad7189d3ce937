package dns

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/yaml"

	"github.com/kemudi/kemudi/internal/client/clienttest"
	"github.com/kemudi/kemudi/internal/resource"
)

// objects is a transport whose caches the test fills.
type objects struct{ *clienttest.Filled }

func newObjects() *objects { return &objects{clienttest.NewFilled()} }

// apply takes in YAML documents, which are new or changed objects.
func (o *objects) apply(t testing.TB, text string) { o.Put(parseObjects(t, text)...) }

// delete takes objects away, of which the documents need to say the names only.
func (o *objects) delete(t *testing.T, text string) { o.Remove(parseObjects(t, text)...) }

func parseObjects(t testing.TB, text string) []resource.Object {
	t.Helper()
	var list []resource.Object
	for _, doc := range strings.Split(text, "---\n") {
		var kind struct{ Kind string }
		decode(t, doc, &kind)
		var object resource.Object
		switch kind.Kind {
		case "Namespace":
			object = &corev1.Namespace{}
		case "Service":
			object = &corev1.Service{}
		case "ConfigMap":
			object = &corev1.ConfigMap{}
		case "Pod":
			object = &corev1.Pod{}
		case "EndpointSlice":
			object = &discoveryv1.EndpointSlice{}
		default:
			t.Fatalf("unknown kind %q in %q", kind.Kind, doc)
		}
		decode(t, doc, object)
		if s, ok := object.(*corev1.Service); ok && len(s.Spec.ClusterIPs) > 0 {
			s.Spec.ClusterIP = s.Spec.ClusterIPs[0]
		}
		list = append(list, object)
	}
	return list
}

func decode(t testing.TB, doc string, into any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(doc), into); err != nil {
		t.Fatalf("parse %q: %v", doc, err)
	}
}
