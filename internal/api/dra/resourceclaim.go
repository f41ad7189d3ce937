package dra

import (
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/resource"
)

// ResourceClaims ask for devices, and say in their status which they have got and who
// may use them. What is checked is in resourceclaim_validate.go (the spec) and
// resourceclaim_status.go.
var ResourceClaims = resource.Define(resource.Spec[*resourcev1.ResourceClaim]{
	Names:   resource.Names{Group: "resource.k8s.io", Version: "v1", Kind: "ResourceClaim", Plural: "resourceclaims", Namespaced: true},
	Default: func(c *resourcev1.ResourceClaim) { defaultClaim(&c.Spec) },
	Prepare: func(c, old *resourcev1.ResourceClaim) {
		dropFromClaim(&c.Spec)
		if old == nil {
			c.Status = resourcev1.ResourceClaimStatus{}
			return
		}
		c.Status = old.Status
	},
	Validate: func(c, old *resourcev1.ResourceClaim, errs *resource.Errors) {
		if old == nil {
			validateClaimSpec(errs.At("spec.devices"), &c.Spec.Devices)
			return
		}
		// What cannot change needs no other check.
		if !equality.Semantic.DeepEqual(c.Spec, old.Spec) {
			errs.Immutable("spec", c.Spec)
		}
	},
	Columns: []resource.Column[*resourcev1.ResourceClaim]{
		{Name: "State", Description: "A summary of the current state (allocated, pending, reserved, etc.).", Value: func(c *resourcev1.ResourceClaim) any { return stateText(c) }},
	},
	Index: map[string]func(*resourcev1.ResourceClaim) []string{IndexPool: poolsOf},
	Sub: []resource.Sub[*resourcev1.ResourceClaim]{{
		Name: "status", Keeps: resource.KeepsMetadata,
		Merge: func(obj, old *resourcev1.ResourceClaim) {
			obj.Spec = old.Spec
			dropFromStatus(obj, old)
		},
		Validate: validateClaimStatus,
	}},
	Versions: []resource.Version[*resourcev1.ResourceClaim]{
		claimV1beta1,
		resource.SameWire[*resourcev1beta2.ResourceClaim](resource.Version[*resourcev1.ResourceClaim]{
			Group: "resource.k8s.io", Version: "v1beta2", OffByDefault: true,
			Deprecated: "resource.k8s.io/v1beta2 ResourceClaim is deprecated in v1.36+, unavailable in v1.39+",
		}),
	},
})

func defaultClaim(s *resourcev1.ResourceClaimSpec) {
	for i := range s.Devices.Requests {
		r := &s.Devices.Requests[i]
		if e := r.Exactly; e != nil {
			defaultMode(&e.AllocationMode, &e.Count)
			defaultTolerations(e.Tolerations)
		}
		for j := range r.FirstAvailable {
			sub := &r.FirstAvailable[j]
			defaultMode(&sub.AllocationMode, &sub.Count)
			defaultTolerations(sub.Tolerations)
		}
	}
}

// defaultMode asks for one device where nothing says how many.
func defaultMode(mode *resourcev1.DeviceAllocationMode, count *int64) {
	if *mode == "" {
		*mode = resourcev1.DeviceAllocationModeExactCount
	}
	if *mode == resourcev1.DeviceAllocationModeExactCount && *count == 0 {
		*count = 1
	}
}

func defaultTolerations(list []resourcev1.DeviceToleration) {
	for i := range list {
		if list[i].Operator == "" {
			list[i].Operator = resourcev1.DeviceTolerationOpEqual
		}
	}
}

// poolsOf are the pools that a claim has devices of.
func poolsOf(c *resourcev1.ResourceClaim) []string {
	if c.Status.Allocation == nil {
		return nil
	}
	var pools []string
	for i := range c.Status.Allocation.Devices.Results {
		r := &c.Status.Allocation.Devices.Results[i]
		if pool := r.Driver + "/" + r.Pool; !slices.Contains(pools, pool) {
			pools = append(pools, pool)
		}
	}
	return pools
}

func stateText(c *resourcev1.ResourceClaim) string {
	var states []string
	deleted := !c.DeletionTimestamp.IsZero()
	if deleted {
		states = append(states, "deleted")
	}
	switch {
	case c.Status.Allocation != nil && len(c.Status.ReservedFor) > 0:
		states = append(states, "allocated", "reserved")
	case c.Status.Allocation != nil:
		states = append(states, "allocated")
	case !deleted:
		states = append(states, "pending")
	}
	return strings.Join(states, ",")
}

// Reserved reports whether the pod with a UID may use a claim.
func Reserved(c *resourcev1.ResourceClaim, pod types.UID) bool {
	return slices.ContainsFunc(c.Status.ReservedFor, func(r resourcev1.ResourceClaimConsumerReference) bool { return r.UID == pod })
}
