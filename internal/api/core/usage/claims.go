package usage

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/component-helpers/storage/volume"

	"github.com/kemudi/kemudi/internal/resource"
)

// claims take storage, in all and of their class.
var claims = rules{
	alias:  corev1.ResourcePersistentVolumeClaims,
	counts: claimCounts,
	amounts: func(obj resource.Object, _ World) corev1.ResourceList {
		return claimAmounts(obj.(*corev1.PersistentVolumeClaim))
	},
	in: func(scope *corev1.ScopedResourceSelectorRequirement, obj resource.Object) bool {
		return scope.ScopeName == corev1.ResourceQuotaScopeVolumeAttributesClass && selects(scope, attributesClasses(obj.(*corev1.PersistentVolumeClaim))...)
	},
	same: func(before, after resource.Object) bool {
		a, b := before.(*corev1.PersistentVolumeClaim), after.(*corev1.PersistentVolumeClaim)
		return SameAmounts(claimAmounts(a), claimAmounts(b)) && slices.Equal(attributesClasses(a), attributesClasses(b))
	},
	updates: []string{""},
}

// ofClass is what stands between the name of a storage class and what is counted.
const ofClass = ".storageclass.storage.k8s.io/"

func claimCounts(name corev1.ResourceName) bool {
	return name == corev1.ResourceRequestsStorage ||
		strings.HasSuffix(string(name), ofClass+string(corev1.ResourceRequestsStorage)) ||
		strings.HasSuffix(string(name), ofClass+string(corev1.ResourcePersistentVolumeClaims))
}

func claimAmounts(c *corev1.PersistentVolumeClaim) corev1.ResourceList {
	amounts := corev1.ResourceList{}
	class := volume.GetPersistentVolumeClaimClass(c)
	if class != "" {
		amounts[corev1.ResourceName(class+ofClass)+corev1.ResourcePersistentVolumeClaims] = one
	}
	storage, ok := claimedStorage(c)
	if !ok {
		return amounts
	}
	amounts[corev1.ResourceRequestsStorage] = storage
	if class != "" {
		amounts[corev1.ResourceName(class+ofClass)+corev1.ResourceRequestsStorage] = storage
	}
	return amounts
}

// claimedStorage is what a claim asks for, or has been given if that is more, in whole bytes.
func claimedStorage(c *corev1.PersistentVolumeClaim) (quantity.Quantity, bool) {
	asked, ok := c.Spec.Resources.Requests[corev1.ResourceStorage]
	if !ok {
		return quantity.Quantity{}, false
	}
	if given := c.Status.AllocatedResources[corev1.ResourceStorage]; given.Cmp(asked) > 0 {
		asked = given
	}
	asked = asked.DeepCopy()
	asked.RoundUp(0)
	return asked, true
}

// attributesClasses are the classes of volume attributes that a claim has or is to have.
func attributesClasses(c *corev1.PersistentVolumeClaim) []string {
	var names []string
	add := func(name string) {
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if name := c.Spec.VolumeAttributesClassName; name != nil {
		add(*name)
	}
	if name := c.Status.CurrentVolumeAttributesClassName; name != nil {
		add(*name)
	}
	if m := c.Status.ModifyVolumeStatus; m != nil {
		add(m.TargetVolumeAttributesClassName)
	}
	return names
}
