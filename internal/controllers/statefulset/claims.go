package statefulset

import (
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/api/apps"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/controller"
)

// claimName is the name of the claim that the pod of a number has of a template.
func claimName(set *appsv1.StatefulSet, template string, n int) string {
	return template + "-" + set.Name + "-" + strconv.Itoa(n)
}

// newClaim makes it. Its labels are those of the template and of the set's selector.
func newClaim(set *appsv1.StatefulSet, template *corev1.PersistentVolumeClaim, n int) *corev1.PersistentVolumeClaim {
	c := template.DeepCopy()
	c.Namespace, c.Name = set.Namespace, claimName(set, template.Name, n)
	for key, value := range set.Spec.Selector.MatchLabels {
		if c.Labels == nil {
			c.Labels = map[string]string{}
		}
		c.Labels[key] = value
	}
	return c
}

// setsOfClaim are names that a set whose claim this may be could have, each with
// the name of the template.
func setsOfClaim(claim string) (sets, templates []string) {
	rest, _, ok := splitName(claim)
	if !ok {
		return nil, nil
	}
	for i := range len(rest) {
		if rest[i] == '-' {
			sets, templates = append(sets, rest[i+1:]), append(templates, rest[:i])
		}
	}
	return sets, templates
}

// retention says when claims go: with the set, with a pod that is one too many.
func retention(set *appsv1.StatefulSet) (withSet, withPod bool) {
	p := set.Spec.PersistentVolumeClaimRetentionPolicy
	if p == nil {
		return false, false
	}
	return p.WhenDeleted == appsv1.DeletePersistentVolumeClaimRetentionPolicyType,
		p.WhenScaled == appsv1.DeletePersistentVolumeClaimRetentionPolicyType
}

// keeper is a set with the pod of a number, as owners of that pod's claims.
type keeper struct {
	set    *appsv1.StatefulSet
	pod    string
	uid    types.UID // of the pod; empty: it is not there yet
	excess bool      // the pod is one too many
}

// owned is a claim as its owners should be: nil if they are. What follows from them
// is the garbage collector's. A claim that a set or pod of these names owned before
// is left alone: it goes with them. So is, but for what is ours, one that somebody
// else controls, if the set would have claims deleted: that is contested.
func (k keeper) owned(claim *corev1.PersistentVolumeClaim) (as *corev1.PersistentVolumeClaim, contested bool) {
	withSet, withPod := retention(k.set)
	has := map[string]bool{}
	loose := false // an owner of ours that does not control
	for i := range claim.OwnerReferences {
		ref := &claim.OwnerReferences[i]
		controls := ref.Controller != nil && *ref.Controller
		switch {
		case !k.ours(ref):
			contested = contested || controls && (withSet || withPod)
		case ref.UID != k.uidOf(ref):
			return nil, withSet || withPod
		default:
			has[ref.Kind] = true
			loose = loose || !controls
		}
	}
	wantSet, wantPod := withSet && !(withPod && k.excess), withPod && k.excess
	if contested {
		wantSet, wantPod, loose = false, false, false
	}
	if has["StatefulSet"] == wantSet && has["Pod"] == wantPod && !loose {
		return nil, contested
	}
	as = claim.DeepCopy()
	as.OwnerReferences = slices.DeleteFunc(as.OwnerReferences, func(ref metav1.OwnerReference) bool { return k.ours(&ref) })
	if wantSet {
		as.OwnerReferences = append(as.OwnerReferences, *controller.ControllerRef(k.set, apps.StatefulSets.Def))
	}
	if wantPod {
		pod := &metav1.ObjectMeta{Name: k.pod, UID: k.uid}
		as.OwnerReferences = append(as.OwnerReferences, *metav1.NewControllerRef(pod, core.Pods.Def.GVK()))
	}
	return as, contested
}

// ours says that a reference is to the set or the pod, or to one of the name before.
func (k keeper) ours(ref *metav1.OwnerReference) bool {
	set, pod := apps.StatefulSets.Def.GVK(), core.Pods.Def.GVK()
	return ref.APIVersion == set.GroupVersion().String() && ref.Kind == set.Kind && ref.Name == k.set.Name ||
		ref.APIVersion == pod.GroupVersion().String() && ref.Kind == pod.Kind && ref.Name == k.pod
}

// uidOf is what a reference of ours must say.
func (k keeper) uidOf(ref *metav1.OwnerReference) types.UID {
	if ref.Kind == "Pod" {
		return k.uid
	}
	return k.set.UID
}
