package apiserver

import (
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	resourceapply "k8s.io/client-go/applyconfigurations/resource/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

// TestDriversSayOfTheirOwnDevicesInTheStatusOfAClaim: of those that are allocated, by applying, so that none takes away what
// another has said.
func TestDriversSayOfTheirOwnDevicesInTheStatusOfAClaim(t *testing.T) {
	eachWire(t, func(t *testing.T, _ *fixture, c *kubernetes.Clientset) {
		ctx, claims := t.Context(), c.ResourceV1().ResourceClaims("default")
		claim, err := claims.Create(ctx, &resourcev1.ResourceClaim{
			ObjectMeta: metav1.ObjectMeta{Name: "c"},
			Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{
				Name: "r", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu"},
			}}}},
		}, metav1.CreateOptions{FieldValidation: "Strict"})
		if err != nil {
			t.Fatal(err)
		}
		said := []resourcev1.AllocatedDeviceStatus{{
			Driver: "one.io", Pool: "global", Device: "d", Data: &runtime.RawExtension{Raw: []byte(`{"kind":"foo","apiVersion":"one.io/v1"}`)},
			NetworkData: &resourcev1.NetworkDeviceData{InterfaceName: "net-1", IPs: []string{"10.9.8.0/24", "2001:db8::/64"}, HardwareAddress: "ea:9f:cb:40:b1:7b"},
		}}
		wants := func(doing string, err error) {
			t.Helper()
			if err != nil {
				t.Fatalf("%s: %v", doing, err)
			}
			if !equality.Semantic.DeepEqual(claim.Status.Devices, said) {
				t.Fatalf("%s: got %v, want %v", doing, claim.Status.Devices, said)
			}
		}
		early := claim.DeepCopy()
		early.Status.Devices = said
		_, err = claims.UpdateStatus(ctx, early, metav1.UpdateOptions{})
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "must be an allocated device in the claim") {
			t.Fatalf("a device that is not allocated: got %v", err)
		}
		claim.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{
			{Request: "r", Driver: "one.io", Pool: "global", Device: "d"},
			{Request: "r", Driver: "two.io", Pool: "global", Device: "e"},
			{Request: "r", Driver: "three.io", Pool: "global", Device: "d"},
		}}}
		if claim, err = claims.UpdateStatus(ctx, claim, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		claim.Status.Devices = said
		claim, err = claims.UpdateStatus(ctx, claim, metav1.UpdateOptions{})
		wants("update", err)
		claim.Status.Devices[0].Data, said[0].Data = nil, nil
		claim, err = claims.UpdateStatus(ctx, claim, metav1.UpdateOptions{})
		wants("update without data", err)

		apply := func(manager string, devices ...*resourceapply.AllocatedDeviceStatusApplyConfiguration) (*resourcev1.ResourceClaim, error) {
			config := resourceapply.ResourceClaim("c", "default")
			if len(devices) > 0 {
				config = config.WithStatus(resourceapply.ResourceClaimStatus().WithDevices(devices...))
			}
			return claims.ApplyStatus(ctx, config, metav1.ApplyOptions{Force: true, FieldManager: manager})
		}
		device := func(driver, name, link string) *resourceapply.AllocatedDeviceStatusApplyConfiguration {
			return resourceapply.AllocatedDeviceStatus().WithDriver(driver).WithPool("global").WithDevice(name).
				WithNetworkData(resourceapply.NetworkDeviceData().WithInterfaceName(link))
		}
		says := func(driver, name, link string) resourcev1.AllocatedDeviceStatus {
			return resourcev1.AllocatedDeviceStatus{Driver: driver, Pool: "global", Device: name, NetworkData: &resourcev1.NetworkDeviceData{InterfaceName: link}}
		}
		said = append(said, says("two.io", "e", "net-2"))
		claim, err = apply("two", device("two.io", "e", "net-2"))
		wants("apply of the second driver", err)
		said = append(said, says("three.io", "d", "net-3"))
		claim, err = apply("three", device("three.io", "d", "net-3"))
		wants("apply of the third", err)
		said[1].NetworkData.InterfaceName = "another"
		claim, err = apply("two", device("two.io", "e", "another"))
		wants("apply of the second again", err)
		said = said[:2]
		claim, err = apply("three")
		wants("apply of the third, which has nothing to say any more", err)
	})
}

// TestSlicesAreStoredAsDriversPublishThem: but for when a device was tainted, which the server says where the driver does not.
func TestSlicesAreStoredAsDriversPublishThem(t *testing.T) {
	eachWire(t, func(t *testing.T, _ *fixture, c *kubernetes.Clientset) {
		ctx, slices := t.Context(), c.ResourceV1().ResourceSlices()
		spec := resourcev1.ResourceSliceSpec{
			Driver: "d.io", Pool: resourcev1.ResourcePool{Name: "global", Generation: 1, ResourceSliceCount: 2}, AllNodes: ptr.To(true),
			Devices: []resourcev1.Device{
				{Name: "tainted", Taints: []resourcev1.DeviceTaint{{Key: "d.io/t", Value: "v", Effect: resourcev1.DeviceTaintEffectNoExecute}}},
				{Name: "prepared", BindingConditions: []string{"a", "b"}, BindingFailureConditions: []string{"c", "d"}, BindsToNode: ptr.To(true)},
			},
		}
		made, err := slices.Create(ctx, &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: *spec.DeepCopy()}, metav1.CreateOptions{FieldValidation: "Strict"})
		if err != nil {
			t.Fatal(err)
		}
		at := made.Spec.Devices[0].Taints[0].TimeAdded
		if at == nil {
			t.Fatal("nothing says when the device was tainted")
		}
		spec.Devices[0].Taints[0].TimeAdded = at
		if !equality.Semantic.DeepEqual(made.Spec, spec) {
			t.Errorf("got %v, want %v", made.Spec, spec)
		}
		_, err = slices.Create(ctx, &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "both"}, Spec: resourcev1.ResourceSliceSpec{
			Driver: "d.io", Pool: spec.Pool, AllNodes: ptr.To(true), NodeName: ptr.To("n"),
		}}, metav1.CreateOptions{})
		if !apierrors.IsInvalid(err) {
			t.Errorf("a slice of all nodes and of one: got %v", err)
		}
		list, err := slices.List(ctx, metav1.ListOptions{FieldSelector: resourcev1.ResourceSliceSelectorDriver + "=d.io"})
		if err != nil || len(list.Items) != 1 {
			t.Errorf("slices of the driver: got %v %v, want one", list.Items, err)
		}
	})
}
