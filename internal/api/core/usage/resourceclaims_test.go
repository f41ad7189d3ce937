package usage_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/dra"
	"github.com/kemudi/kemudi/internal/resource"
)

// TestDevicesCountByEachOfTheirNames has the class gpu serve example.com/gpu. What a pod pays
// for as an extended resource, the claim that is made for it does not pay for again.
func TestDevicesCountByEachOfTheirNames(t *testing.T) {
	pods := map[string]*corev1.Pod{}
	for name, requests := range map[string]string{
		"implicit": "deviceclass.resource.kubernetes.io/gpu: 2", "explicit": "example.com/gpu: 2", "both": "deviceclass.resource.kubernetes.io/gpu: 2, example.com/gpu: 1",
	} {
		pod := &corev1.Pod{}
		if err := yaml.Unmarshal([]byte("metadata: {name: "+name+", uid: "+name+"}\nspec: {containers: [{name: a, resources: {requests: {"+requests+"}}}]}"), pod); err != nil {
			t.Fatal(err)
		}
		pods[name] = pod
	}
	world := func(def *resource.Def, _, name string) resource.Object {
		switch def {
		case dra.DeviceClasses.Def:
			if name == "gpu" {
				return &resourcev1.DeviceClass{Spec: resourcev1.DeviceClassSpec{ExtendedResourceName: ptr.To("example.com/gpu")}}
			}
		case core.Pods.Def:
			if pod := pods[name]; pod != nil {
				return pod
			}
		}
		return nil
	}
	for _, tc := range []struct{ name, owner, requests, want string }{
		{"a class that serves nothing", "", "[{exactly: {deviceClassName: nic, allocationMode: ExactCount, count: 3}}]",
			"nic.deviceclass.resource.k8s.io/devices=3 requests.deviceclass.resource.kubernetes.io/nic=3"},
		{"a class that serves a resource", "", "[{exactly: {deviceClassName: gpu, allocationMode: ExactCount, count: 2}}, {exactly: {deviceClassName: gpu, allocationMode: All}}]",
			"gpu.deviceclass.resource.k8s.io/devices=34 requests.deviceclass.resource.kubernetes.io/gpu=34 requests.example.com/gpu=34"},
		{"the most of alternatives", "", "[{firstAvailable: [{deviceClassName: gpu, allocationMode: ExactCount, count: 4}, {deviceClassName: gpu, allocationMode: ExactCount, count: 2}]}]",
			"gpu.deviceclass.resource.k8s.io/devices=4 requests.deviceclass.resource.kubernetes.io/gpu=4 requests.example.com/gpu=4"},
		{"for a pod that asked by the name of the class", "implicit", "[{exactly: {deviceClassName: gpu, allocationMode: ExactCount, count: 2}}]",
			"gpu.deviceclass.resource.k8s.io/devices=2 requests.example.com/gpu=2"},
		{"for a pod that asked by the name of the resource", "explicit", "[{exactly: {deviceClassName: gpu, allocationMode: ExactCount, count: 2}}]",
			"gpu.deviceclass.resource.k8s.io/devices=2 requests.deviceclass.resource.kubernetes.io/gpu=2"},
		{"for a pod that asked by both", "both", "[{exactly: {deviceClassName: gpu, allocationMode: ExactCount, count: 2}}, {exactly: {deviceClassName: gpu, allocationMode: ExactCount, count: 1}}]",
			"gpu.deviceclass.resource.k8s.io/devices=3 requests.deviceclass.resource.kubernetes.io/gpu=1 requests.example.com/gpu=2"},
		{"for a pod that is gone", "gone", "[{exactly: {deviceClassName: gpu, allocationMode: ExactCount, count: 2}}]",
			"gpu.deviceclass.resource.k8s.io/devices=2 requests.deviceclass.resource.kubernetes.io/gpu=2 requests.example.com/gpu=2"},
	} {
		claim := &resourcev1.ResourceClaim{}
		if err := yaml.Unmarshal([]byte("{spec: {devices: {requests: "+tc.requests+"}}}"), claim); err != nil {
			t.Fatal(err)
		}
		if tc.owner != "" {
			claim.Annotations = map[string]string{resourcev1.ExtendedResourceClaimAnnotation: "true"}
			claim.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: tc.owner, UID: types.UID(tc.owner), Controller: ptr.To(true)}}
		}
		use := counter(t, dra.ResourceClaims.Def).Within(world).Of(claim)
		var got []string
		for _, name := range use.Names(time.Time{}) {
			if q := use.At(time.Time{}, name); !strings.HasPrefix(string(name), "count/") {
				got = append(got, fmt.Sprintf("%s=%s", name, q.String()))
			}
		}
		slices.Sort(got)
		if got := strings.Join(got, " "); got != tc.want {
			t.Errorf("%s: got %s, want %s", tc.name, got, tc.want)
		}
	}
	use := counter(t, core.Pods.Def).Of(pods["both"])
	if q := use.At(time.Time{}, "requests.deviceclass.resource.kubernetes.io/gpu"); q.Value() != 2 {
		t.Errorf("a pod that asks for two by the name of the class takes %s", q.String())
	}
}
