package disruption

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/api/apps"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/policy"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/resource"
)

// scales asks owners how many pods they want.
type scales struct {
	kinds *controller.Lookup
	t     client.Transport
}

// of is how many pods the controlling owners of pods want together, each asked
// once, and how many of the pods have no such owner.
func (s *scales) of(pods []*corev1.Pod) (sum int32, unmanaged int, _ error) {
	asked := map[types.UID]bool{}   // owners of pods
	counted := map[types.UID]bool{} // those whose number has been added
	for _, p := range pods {
		ref := metav1.GetControllerOfNoCopy(p)
		if ref == nil {
			unmanaged++
			continue
		}
		if asked[ref.UID] {
			continue
		}
		asked[ref.UID] = true
		owner, n, err := s.ask(p.Namespace, ref)
		if err != nil {
			return 0, 0, err
		}
		if owner == nil {
			return 0, 0, fmt.Errorf("found no controllers for pod %q", p.Name)
		}
		if !counted[owner.GetUID()] {
			counted[owner.GetUID()] = true
			sum += n
		}
	}
	return sum, unmanaged, nil
}

// ask finds the owner that a reference names and how many pods it wants: a
// ReplicaSet wants what its Deployment does. The owner is nil if it is gone.
func (s *scales) ask(namespace string, ref *metav1.OwnerReference) (owner resource.Object, n int32, _ error) {
	owner, n, err := s.find(namespace, ref)
	if _, is := owner.(*appsv1.ReplicaSet); err != nil || !is {
		return owner, n, err
	}
	above := metav1.GetControllerOfNoCopy(owner)
	if above == nil || s.kind(above) != apps.Deployments.Def {
		return owner, n, nil
	}
	deployment, all, err := s.find(namespace, above)
	if err != nil || deployment == nil {
		return owner, n, err
	}
	return deployment, all, nil
}

// kind is the resource of the owner that a reference names; nil if it is not known.
func (s *scales) kind(ref *metav1.OwnerReference) *resource.Def {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return nil
	}
	return s.kinds.Kind(gv.WithKind(ref.Kind).GroupKind())
}

func (s *scales) find(namespace string, ref *metav1.OwnerReference) (resource.Object, int32, error) {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return nil, 0, err
	}
	def := s.kinds.Kind(gv.WithKind(ref.Kind).GroupKind())
	var objects *cache.Cache
	if def != nil {
		objects = s.t.Cache(def, "")
	}
	if objects == nil {
		return nil, 0, &meta.NoKindMatchError{GroupKind: gv.WithKind(ref.Kind).GroupKind(), SearchedVersions: []string{gv.Version}}
	}
	if scaleOf(def) == nil {
		return nil, 0, fmt.Errorf("%s does not implement the scale subresource", def.GroupResource())
	}
	it := objects.Get(cache.Key(namespace, ref.Name))
	if it == nil || it.Object.GetUID() != ref.UID {
		return nil, 0, nil
	}
	return it.Object, scaleOf(def)(it.Object), nil
}

// scaleOf is how many pods objects of a resource want; nil if they have no scale.
func scaleOf(def *resource.Def) func(obj resource.Object) int32 {
	sub := def.Subresource("scale")
	if sub == nil || sub.Get == nil {
		return nil
	}
	return func(obj resource.Object) int32 {
		if scale, ok := sub.Get(obj).(*autoscalingv1.Scale); ok {
			return scale.Spec.Replicas
		}
		return 0
	}
}

// scaled watches the owners of a kind with a scale: one that wants another number
// of pods wakes their budgets.
func scaled(def *resource.Def) (controller.Watch, bool) {
	wants := scaleOf(def)
	if wants == nil {
		return controller.Watch{}, false
	}
	return controller.Watch{
		Def: def,
		Same: func(before, after resource.Object) bool {
			return before.GetUID() == after.GetUID() && (before.GetGeneration() == after.GetGeneration() || wants(before) == wants(after))
		},
		Keys: budgetsOf,
	}, true
}

// budgetsOf are the budgets of the pods of an owner: those that it controls, or
// that are controlled by a ReplicaSet of its own.
func budgetsOf(k *controller.Kit, owner resource.Object) []string {
	if controller.For(k, policy.PodDisruptionBudgets).Len() == 0 {
		return nil
	}
	var keys []string
	add := func(uid types.UID) {
		for _, p := range controller.For(k, core.Pods).ByIndex(resource.IndexController, string(uid)) {
			for _, key := range k.Selecting(selection, p) {
				if !slices.Contains(keys, key) {
					keys = append(keys, key)
				}
			}
		}
	}
	add(owner.GetUID())
	for _, rs := range controller.For(k, apps.ReplicaSets).ByIndex(resource.IndexController, string(owner.GetUID())) {
		add(rs.UID)
	}
	return keys
}
