package usage

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/dra"
	"github.com/kemudi/kemudi/internal/resource"
)

// resourceClaims take devices of their classes, by each name that quotas have for those:
// the class's, the one under which pods ask for its devices as for a resource, and
// the extended resource that the class serves.
var resourceClaims = rules{
	counts: func(name corev1.ResourceName) bool {
		return strings.HasSuffix(string(name), corev1.ResourceClaimsPerClass) || isExtended(name)
	},
	amounts: func(obj resource.Object, w World) corev1.ResourceList {
		return deviceAmounts(obj.(*resourcev1.ResourceClaim), w)
	},
}

// deviceAmounts are the devices that a claim may get, of each class: of requests with
// alternatives the most that one of them takes of it. A claim that was made for the
// extended resources of a pod does not take what the pod takes already.
func deviceAmounts(c *resourcev1.ResourceClaim, w World) corev1.ResourceList {
	paid := paidByPod(c, w)
	amounts := corev1.ResourceList{}
	add := func(name corev1.ResourceName, n int64) {
		q := amounts[name]
		q.Add(*quantity.NewQuantity(n, quantity.DecimalSI))
		amounts[name] = q
	}
	take := func(class string, n int64) {
		add(corev1.ResourceName(class+corev1.ResourceClaimsPerClass), n)
		implicit := corev1.ResourceName(corev1.ResourceImplicitExtendedClaimsPerClass + class)
		byImplicit := pays(paid, implicit, n)
		if !byImplicit {
			add(implicit, n)
		}
		if explicit := served(class, w); explicit != "" && (byImplicit || !pays(paid, explicit, n)) {
			add(explicit, n)
		}
	}
	for i := range c.Spec.Devices.Requests {
		r := &c.Spec.Devices.Requests[i]
		if r.Exactly != nil {
			take(r.Exactly.DeviceClassName, atMost(r.Exactly.AllocationMode, r.Exactly.Count))
		}
		most := map[string]int64{}
		for j := range r.FirstAvailable {
			s := &r.FirstAvailable[j]
			most[s.DeviceClassName] = max(most[s.DeviceClassName], atMost(s.AllocationMode, s.Count))
		}
		for class, n := range most {
			take(class, n)
		}
	}
	return amounts
}

// served is the name that quotas have for the extended resource that a class serves;
// empty if it serves none.
func served(class string, w World) corev1.ResourceName {
	if w == nil {
		return ""
	}
	c, ok := w(dra.DeviceClasses.Def, "", class).(*resourcev1.DeviceClass)
	if !ok || c.Spec.ExtendedResourceName == nil {
		return ""
	}
	return corev1.ResourceName(corev1.DefaultResourceRequestsPrefix + *c.Spec.ExtendedResourceName)
}

// paidByPod is what the pod takes for whose extended resources a claim was made; nil if it
// was made for none.
func paidByPod(c *resourcev1.ResourceClaim, w World) corev1.ResourceList {
	owner := metav1.GetControllerOf(c)
	if c.Annotations[resourcev1.ExtendedResourceClaimAnnotation] != "true" || owner == nil || owner.Kind != "Pod" || owner.APIVersion != "v1" || w == nil {
		return nil
	}
	pod, ok := w(core.Pods.Def, c.Namespace, owner.Name).(*corev1.Pod)
	if !ok || pod.UID != owner.UID {
		return nil
	}
	if s := pod.Status.ExtendedResourceClaimStatus; s != nil && s.ResourceClaimName != c.Name {
		return nil
	}
	return podAmounts(pod)
}

// pays takes n of what a pod has paid, if there is as much.
func pays(paid corev1.ResourceList, name corev1.ResourceName, n int64) bool {
	left, ok := paid[name]
	if !ok || left.CmpInt64(n) < 0 {
		return false
	}
	left.Sub(*quantity.NewQuantity(n, quantity.DecimalSI))
	paid[name] = left
	return true
}

// atMost is how many devices a mode of allocation may take; nothing if it is not known.
func atMost(mode resourcev1.DeviceAllocationMode, count int64) int64 {
	switch mode {
	case resourcev1.DeviceAllocationModeExactCount:
		return count
	case resourcev1.DeviceAllocationModeAll:
		return resourcev1.AllocationResultsMaxSize
	}
	return 0
}
