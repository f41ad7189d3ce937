package watchcache

import (
	"reflect"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/layout"
	"github.com/kemudi/kemudi/internal/resource"
)

// Pods of one template have nearly all of their spec in common, and much of their
// status; and the states of one object have all in common that was not written.
// The cache keeps one copy of each part that is equal to the letter: objects of a
// cache are never changed, so nobody can tell.

const (
	// templateMax bounds the table; a full one starts again from nothing.
	templateMax = 512
	// templateForms is how many objects are kept of one name and image: of those
	// revisions of a workload that are alive at one time.
	templateForms = 4
)

// templateKey finds the objects that may resemble each other. It is cheap, and need not be exact.
type templateKey struct {
	def                         *resource.Def
	namespace, container, image string
}

// share replaces the parts of an object that are equal to those of its state
// before (nil: there is none) or of one that resembles it. Only the object's own
// fields are changed, not what they refer to. Nobody changes the object afterwards:
// the next ones like it are compared with it.
func (in *interner) share(def *resource.Def, obj, before resource.Object) {
	key, ok := templateOf(def, obj)
	if !ok {
		adoptObject(obj, before, nil)
		return
	}
	known := in.templates(key)
	var like resource.Object
	switch {
	case len(known) > 0 && before != nil:
		like = known[0] // of the spec there is more in the state before
	case len(known) > 0:
		like = known[likeAt(def, known, obj)]
	}
	adoptObject(obj, before, like)
	// A new array each time: others read the old one without the lock.
	next := append(make([]resource.Object, 0, templateForms), obj)
	for _, other := range known {
		if len(next) < templateForms && &def.PodSpec(other).Containers[0] != &def.PodSpec(obj).Containers[0] {
			next = append(next, other)
		}
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.mu.templates == nil || len(in.mu.templates) > templateMax {
		in.mu.templates = map[templateKey][]resource.Object{}
	}
	in.mu.templates[key] = next
}

// adoptObject takes over what an object has in common with one of two others, each
// of which may be nil.
func adoptObject(obj, first, second resource.Object) {
	t := reflect.TypeOf(obj)
	a, b := structOf(first, t), structOf(second, t)
	if a.IsNil() {
		a, b = b, a
	}
	if !a.IsNil() {
		likenessOf(t.Elem()).ready().adopt(layout.PtrOf(obj), a, b)
	}
}

// structOf is where the struct of an object lies; nowhere: there is none, or it is of
// another type.
func structOf(obj resource.Object, t reflect.Type) layout.Ptr {
	if obj == nil || reflect.TypeOf(obj) != t {
		return layout.Ptr{}
	}
	return layout.PtrOf(obj)
}

// templateOf is where objects like this one are; false: what one refers to is not
// looked for in others.
func templateOf(def *resource.Def, obj resource.Object) (templateKey, bool) {
	if def.PodSpec == nil {
		return templateKey{}, false
	}
	spec := def.PodSpec(obj)
	if len(spec.Containers) == 0 {
		return templateKey{}, false
	}
	c := &spec.Containers[0]
	return templateKey{def, obj.GetNamespace(), c.Name, c.Image}, true
}

// likeAt is the place of the one with equal containers, or else of the newest.
func likeAt(def *resource.Def, known []resource.Object, obj resource.Object) int {
	own := layout.PtrOf(&def.PodSpec(obj).Containers)
	like := likenessOf(reflect.TypeFor[[]corev1.Container]()).ready()
	for i, other := range known {
		if like.same(own, layout.PtrOf(&def.PodSpec(other).Containers)) {
			return i
		}
	}
	return 0
}

func (in *interner) templates(key templateKey) []resource.Object {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.mu.templates[key]
}
