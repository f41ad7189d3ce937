package devices

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// BenchmarkTry looks for devices on one node after the other: of eight, half are in use.
func BenchmarkTry(b *testing.B) {
	const nodes = 500
	class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}, Spec: resourcev1.DeviceClassSpec{
		Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: "kind=gpu"}}},
	}}
	numa := ptr.To(resourcev1.FullyQualifiedName("d.io/numa"))
	for _, bc := range []struct {
		name  string
		claim resourcev1.DeviceClaim
	}{
		{"one", resourcev1.DeviceClaim{Requests: exactly(1)}},
		{"four", resourcev1.DeviceClaim{Requests: exactly(4)}},
		{"two that match", resourcev1.DeviceClaim{Requests: exactly(2), Constraints: []resourcev1.DeviceConstraint{{MatchAttribute: numa}}}},
		{"too many", resourcev1.DeviceClaim{Requests: exactly(5)}},
	} {
		b.Run(bc.name, func(b *testing.B) {
			v := New(testCompile)
			v.SetClass(class)
			var list []*corev1.Node
			for i := range nodes {
				name := fmt.Sprintf("node-%d", i)
				list = append(list, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
				s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourcev1.ResourceSliceSpec{
					Driver: "d.io", Pool: resourcev1.ResourcePool{Name: name, ResourceSliceCount: 1}, NodeName: &name,
				}}
				a := &resourcev1.AllocationResult{}
				for j := range 8 {
					d := resourcev1.Device{Name: fmt.Sprintf("d%d", j), Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
						"kind": {StringValue: ptr.To("gpu")}, "numa": {IntValue: ptr.To(int64(j % 4 / 2))},
					}}
					s.Spec.Devices = append(s.Spec.Devices, d)
					if j%2 == 0 {
						a.Devices.Results = append(a.Devices.Results, resourcev1.DeviceRequestAllocationResult{Driver: "d.io", Pool: name, Device: d.Name})
					}
				}
				v.SetSlice(s)
				v.Take(types.UID(name), a)
			}
			p, err := v.Plan([]*resourcev1.ResourceClaim{{Spec: resourcev1.ResourceClaimSpec{Devices: bc.claim}}})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if _, err := v.Try(p, list[i%nodes], MaxSteps); (err == nil) != (bc.name != "too many") {
					b.Fatal(err)
				}
			}
		})
	}
}

func exactly(n int64) []resourcev1.DeviceRequest {
	return []resourcev1.DeviceRequest{{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu", Count: n}}}
}
