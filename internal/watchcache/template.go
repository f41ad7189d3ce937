package watchcache

import (
	"reflect"

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
// before (nil: there is none) and of one that resembles it. Only the object's own
// fields are changed, not what they refer to.
func (in *interner) share(def *resource.Def, obj, before resource.Object) {
	if before != nil {
		adoptObject(obj, before)
	}
	key, ok := templateOf(def, obj)
	if !ok {
		return
	}
	known := in.templates(key)
	if len(known) == 0 {
		return
	}
	adoptObject(obj, known[max(0, likeAt(def, known, obj))])
}

// adoptObject takes over what two objects of one type have in common.
func adoptObject(obj, kept resource.Object) {
	own, other := reflect.ValueOf(obj), reflect.ValueOf(kept)
	if own.Type() == other.Type() {
		adopt(own.Elem(), other.Elem())
	}
}

// remember makes the object, which nobody changes any more, one that the next ones
// like it are compared with.
func (in *interner) remember(def *resource.Def, obj resource.Object) {
	key, ok := templateOf(def, obj)
	if !ok {
		return
	}
	known := in.templates(key)
	at := likeAt(def, known, obj)
	// A new array each time: others read the old one without the lock.
	next := append(make([]resource.Object, 0, templateForms), obj)
	for i, other := range known {
		if i != at && len(next) < templateForms {
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

// likeAt is the place of the one with equal containers; -1: there is none.
func likeAt(def *resource.Def, known []resource.Object, obj resource.Object) int {
	containers := reflect.ValueOf(def.PodSpec(obj)).Elem().FieldByName("Containers")
	for i, other := range known {
		if sameItems(containers, reflect.ValueOf(def.PodSpec(other).Containers)) {
			return i
		}
	}
	return -1
}

func (in *interner) templates(key templateKey) []resource.Object {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.mu.templates[key]
}
