package dns

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/yaml"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/discovery"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/resource"
)

// objects is a transport whose caches the test fills.
type objects struct {
	client.Transport // nothing but Cache may be called
	progress         cache.Progress
	caches           map[*resource.Def]*cache.Cache
	rev              int64
}

func newObjects() *objects {
	o := &objects{caches: map[*resource.Def]*cache.Cache{}}
	for _, def := range []*resource.Def{core.Namespaces.Def, core.Services.Def, core.ConfigMaps.Def, discovery.EndpointSlices.Def} {
		o.caches[def] = cache.New(def, &o.progress)
		o.caches[def].Replace(nil, 0)
	}
	return o
}

func (o *objects) Cache(def *resource.Def, _ string) *cache.Cache { return o.caches[def] }

func defOf(object resource.Object) *resource.Def {
	switch object.(type) {
	case *corev1.Namespace:
		return core.Namespaces.Def
	case *corev1.Service:
		return core.Services.Def
	case *corev1.ConfigMap:
		return core.ConfigMaps.Def
	case *discoveryv1.EndpointSlice:
		return discovery.EndpointSlices.Def
	}
	panic(fmt.Sprintf("no definition of %T", object))
}

func (o *objects) change(remove bool, list ...resource.Object) {
	for _, object := range list {
		o.rev++
		item := &cache.Item{Key: cache.Key(object.GetNamespace(), object.GetName()), Rev: o.rev, Object: object}
		o.caches[defOf(object)].Apply([]cache.Change{{Item: item, Delete: remove}})
	}
	o.progress.Advance(o.rev)
}

// apply takes in YAML documents, which are new or changed objects.
func (o *objects) apply(t *testing.T, text string) { o.change(false, parseObjects(t, text)...) }

// delete takes objects away, of which the documents need to say the names only.
func (o *objects) delete(t *testing.T, text string) { o.change(true, parseObjects(t, text)...) }

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
