package watchcache

import (
	"reflect"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/resource"
)

// Pods of one template have nearly all of their spec in common, and a spec is
// the larger part of a pod in memory. The cache keeps one copy of each part that
// is equal to the letter: objects of a cache are never changed, so nobody can
// tell.

const (
	// templateMax bounds the table; a full one starts again from nothing.
	templateMax = 512
	// templateForms is how many specs are kept of one name and image: those of
	// the revisions of a workload that are alive at one time.
	templateForms = 4
)

// templateKey finds the specs that may be equal. It is cheap, and need not be exact.
type templateKey struct{ namespace, container, image string }

// template replaces the parts of a pod's spec that are equal to those of one
// seen before. Only the spec's own fields are changed, not what they refer to.
func (in *interner) template(def *resource.Def, obj resource.Object) {
	if def.PodSpec == nil {
		return
	}
	spec := def.PodSpec(obj)
	if len(spec.Containers) == 0 {
		return
	}
	c := &spec.Containers[0]
	key := templateKey{obj.GetNamespace(), c.Name, c.Image}
	known := in.templates(key)
	for _, t := range known {
		if !reflect.DeepEqual(t.Containers, spec.Containers) {
			continue
		}
		spec.Containers = t.Containers
		spec.InitContainers = sharedSlice(t.InitContainers, spec.InitContainers)
		spec.Volumes = sharedSlice(t.Volumes, spec.Volumes)
		spec.Tolerations = sharedSlice(t.Tolerations, spec.Tolerations)
		spec.TopologySpreadConstraints = sharedSlice(t.TopologySpreadConstraints, spec.TopologySpreadConstraints)
		spec.Affinity = sharedPointer(t.Affinity, spec.Affinity)
		spec.SecurityContext = sharedPointer(t.SecurityContext, spec.SecurityContext)
		spec.DNSConfig = sharedPointer(t.DNSConfig, spec.DNSConfig)
		spec.TerminationGracePeriodSeconds = sharedPointer(t.TerminationGracePeriodSeconds, spec.TerminationGracePeriodSeconds)
		return
	}
	kept := *spec
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.mu.templates == nil || len(in.mu.templates) > templateMax {
		in.mu.templates = map[templateKey][]*corev1.PodSpec{}
	}
	// A new array each time: others read the old one without the lock.
	in.mu.templates[key] = append([]*corev1.PodSpec{&kept}, known[:min(len(known), templateForms-1)]...)
}

func (in *interner) templates(key templateKey) []*corev1.PodSpec {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.mu.templates[key]
}

// sharedSlice is kept if it is equal to own, else own.
func sharedSlice[T any](kept, own []T) []T {
	if len(kept) == len(own) && len(own) > 0 && reflect.DeepEqual(kept, own) {
		return kept
	}
	return own
}

// sharedPointer is kept if what it points to is equal, else own.
func sharedPointer[T any](kept, own *T) *T {
	if kept != nil && own != nil && reflect.DeepEqual(kept, own) {
		return kept
	}
	return own
}
