package usage

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"

	"github.com/kemudi/kemudi/internal/resource"
)

// resourceClaims take devices of their classes.
var resourceClaims = rules{
	counts: func(name corev1.ResourceName) bool { return strings.HasSuffix(string(name), devicesOfClass) },
	amounts: func(obj resource.Object) corev1.ResourceList {
		return deviceAmounts(obj.(*resourcev1.ResourceClaim))
	},
}

// devicesOfClass follows the name of a device class in the name of what is counted.
const devicesOfClass = ".deviceclass.resource.k8s.io/devices"

// deviceAmounts are the devices that a claim may get, of each class: of requests with
// alternatives the most that one of them takes of it.
func deviceAmounts(c *resourcev1.ResourceClaim) corev1.ResourceList {
	devices := map[string]int64{}
	for i := range c.Spec.Devices.Requests {
		r := &c.Spec.Devices.Requests[i]
		if r.Exactly != nil {
			devices[r.Exactly.DeviceClassName] += atMost(r.Exactly.AllocationMode, r.Exactly.Count)
		}
		most := map[string]int64{}
		for j := range r.FirstAvailable {
			s := &r.FirstAvailable[j]
			most[s.DeviceClassName] = max(most[s.DeviceClassName], atMost(s.AllocationMode, s.Count))
		}
		for class, n := range most {
			devices[class] += n
		}
	}
	amounts := corev1.ResourceList{}
	for class, n := range devices {
		amounts[corev1.ResourceName(class+devicesOfClass)] = *quantity.NewQuantity(n, quantity.DecimalSI)
	}
	return amounts
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
