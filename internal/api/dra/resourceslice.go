package dra

import (
	"fmt"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/resource"
)

// ResourceSlices are what drivers publish: devices of a pool, or the counters that
// devices of the pool share. What is checked is in resourceslice_validate.go and, of
// capacities that are given out in parts, in capacity.go.
var ResourceSlices = resource.Define(resource.Spec[*resourcev1.ResourceSlice]{
	Names:         resource.Names{Group: "resource.k8s.io", Version: "v1", Kind: "ResourceSlice", Plural: "resourceslices"},
	HasGeneration: true,
	Default: func(s *resourcev1.ResourceSlice) {
		for i := range s.Spec.Devices {
			for j := range s.Spec.Devices[i].Taints {
				defaultTaint(&s.Spec.Devices[i].Taints[j])
			}
		}
	},
	Prepare:  func(s, _ *resourcev1.ResourceSlice) { dropFromSlice(&s.Spec) },
	Validate: validateSlice,
	Warn: func(s, _ *resourcev1.ResourceSlice) []string {
		if s.Spec.Driver == strings.ToLower(s.Spec.Driver) {
			return nil
		}
		return []string{fmt.Sprintf("spec.driver: driver names should be lowercase; %q contains uppercase characters", s.Spec.Driver)}
	},
	Columns: []resource.Column[*resourcev1.ResourceSlice]{
		{Name: "Node", Description: resourcev1.ResourceSliceSpec{}.SwaggerDoc()["nodeName"], Value: func(s *resourcev1.ResourceSlice) any { return ptr.Deref(s.Spec.NodeName, "<unset>") }},
		{Name: "Driver", Description: resourcev1.ResourceSliceSpec{}.SwaggerDoc()["driver"], Value: func(s *resourcev1.ResourceSlice) any { return s.Spec.Driver }},
		{Name: "Pool", Description: resourcev1.ResourcePool{}.SwaggerDoc()["name"], Value: func(s *resourcev1.ResourceSlice) any { return s.Spec.Pool.Name }},
	},
	Fields: map[string]func(*resourcev1.ResourceSlice) string{
		resourcev1.ResourceSliceSelectorNodeName: nodeOf,
		resourcev1.ResourceSliceSelectorDriver:   func(s *resourcev1.ResourceSlice) string { return s.Spec.Driver },
		resourcev1.ResourceSliceSelectorPoolName: func(s *resourcev1.ResourceSlice) string { return s.Spec.Pool.Name },
	},
	Index: map[string]func(*resourcev1.ResourceSlice) []string{
		resourcev1.ResourceSliceSelectorNodeName: func(s *resourcev1.ResourceSlice) []string { return []string{nodeOf(s)} },
		IndexPool:                                func(s *resourcev1.ResourceSlice) []string { return []string{s.Spec.Driver + "/" + s.Spec.Pool.Name} },
	},
	Versions: []resource.Version[*resourcev1.ResourceSlice]{
		sliceV1beta1,
		resource.SameWire[*resourcev1beta2.ResourceSlice](resource.Version[*resourcev1.ResourceSlice]{
			Group: "resource.k8s.io", Version: "v1beta2", OffByDefault: true,
			Deprecated: "resource.k8s.io/v1beta2 ResourceSlice is deprecated in v1.36+, unavailable in v1.39+",
		}),
	},
})

// IndexPool is the index of slices by the pool that they are part of, and of claims by the
// pools that their devices are of: the driver, a slash and the pool's name.
const IndexPool = "pool"

// nodeOf is the node that a slice's devices are part of; empty if it is not one node.
func nodeOf(s *resourcev1.ResourceSlice) string { return ptr.Deref(s.Spec.NodeName, "") }
