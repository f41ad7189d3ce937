package admissiontest

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/yaml"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/api"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/resource"
)

// World is the caches of all resources.
type World struct {
	Caches   map[*resource.Def]*cache.Cache
	progress *cache.Progress
	rev      int64
}

// New holds objects written as "Kind: YAML".
func New(t testing.TB, objs ...string) *World {
	t.Helper()
	w := &World{Caches: map[*resource.Def]*cache.Cache{}, progress: &cache.Progress{}, rev: 1}
	for _, d := range api.All() {
		w.Caches[d] = cache.New(d, w.progress)
		w.Caches[d].Replace(nil, 1)
	}
	for _, text := range objs {
		w.Set(t, text)
	}
	return w
}

// Set adds or changes an object written as "Kind: YAML".
func (w *World) Set(t testing.TB, text string) {
	t.Helper()
	d, obj := parse(t, text)
	w.rev++
	w.Caches[d].Apply([]cache.Change{{Item: &cache.Item{Key: cache.Key(obj.GetNamespace(), obj.GetName()), Rev: w.rev, Object: obj}}})
	w.progress.Advance(w.rev)
}

// Options are those of plugins in this world, whose caches are never behind.
func (w *World) Options() *admission.Options {
	return &admission.Options{
		Caches: func(d *resource.Def) *cache.Cache { return w.Caches[d] }, Defs: api.All(),
		Fresh: func(context.Context) error { return nil },
	}
}

// parse reads "Kind: YAML", where the YAML may leave out apiVersion and kind.
func parse(t testing.TB, text string) (*resource.Def, resource.Object) {
	t.Helper()
	kind, body, _ := strings.Cut(text, ":")
	for _, d := range api.All() {
		if d.Kind != kind {
			continue
		}
		obj := d.New()
		if err := yaml.UnmarshalStrict([]byte(body), obj); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		return d, obj
	}
	t.Fatalf("no kind %q", kind)
	return nil, nil
}

// Request makes the attributes of alice's write: "Kind: YAML" for what shall be
// and what is; the operation follows from which are there.
func Request(t testing.TB, now, old string) *admission.Attributes {
	t.Helper()
	a := &admission.Attributes{User: &user.DefaultInfo{Name: "alice"}, Operation: admission.Update, Warn: func(string) {}}
	var any resource.Object
	if old != "" {
		a.Def, a.Old = parse(t, old)
		any = a.Old
	} else {
		a.Operation = admission.Create
	}
	if now != "" {
		a.Def, any = parse(t, now)
		a.Object = any
	} else {
		a.Operation = admission.Delete
	}
	a.Namespace, a.Name = any.GetNamespace(), any.GetName()
	return a
}

// Run asks both halves of the plugins and returns what an error says.
func Run(t testing.TB, c *admission.Chain, a *admission.Attributes) string {
	t.Helper()
	err := c.Mutate(t.Context(), a)
	if err == nil {
		err = c.Validate(t.Context(), a)
	}
	if err == nil {
		return ""
	}
	if apierrors.ReasonForError(err) == "" {
		t.Errorf("not an API error: %v", err)
	}
	return err.Error()
}

// Spec shows what a pod says of itself in YAML.
func Spec(t testing.TB, pod *corev1.Pod) string {
	t.Helper()
	data, err := yaml.Marshal(pod.Spec)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
