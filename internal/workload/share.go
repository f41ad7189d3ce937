package workload

import (
	"k8s.io/apimachinery/pkg/util/intstr"
)

// RoundedUp is a number of pods, or a percentage of so many, rounded up; nil is none.
func RoundedUp(v *intstr.IntOrString, of int32) int32 { return share(v, of, true) }

// RoundedDown is likewise, rounded down.
func RoundedDown(v *intstr.IntOrString, of int32) int32 { return share(v, of, false) }

func share(v *intstr.IntOrString, of int32, up bool) int32 {
	if v == nil {
		return 0
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(v, int(of), up)
	if err != nil { // validation lets none through
		return 0
	}
	return int32(n)
}
