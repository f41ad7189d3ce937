package dra

import resourcev1 "k8s.io/api/resource/v1"

// dropFromClaim takes away fields of features that are alpha in this version, as a
// server with its default feature gates does. It writes only where there is something to
// drop: parts of s may be shared with a stored object.
func dropFromClaim(s *resourcev1.ResourceClaimSpec) {
	for i := range s.Devices.Requests {
		r := &s.Devices.Requests[i]
		if r.Exactly != nil && r.Exactly.DerivedAttributes != nil {
			r.Exactly.DerivedAttributes = nil
		}
		for j := range r.FirstAvailable {
			if r.FirstAvailable[j].DerivedAttributes != nil {
				r.FirstAvailable[j].DerivedAttributes = nil
			}
		}
	}
}

// dropFromStatus does the same with a status, and takes away what drivers have said of
// devices that the claim had before this write and has no more.
func dropFromStatus(c, old *resourcev1.ResourceClaim) {
	if a := c.Status.Allocation; a != nil {
		for i := range a.Devices.Results {
			if a.Devices.Results[i].SkipNodeOperations != nil {
				a.Devices.Results[i].SkipNodeOperations = nil
			}
		}
	}
	before, after := whole(old.Status.Allocation), whole(c.Status.Allocation)
	var devices []resourcev1.AllocatedDeviceStatus
	for _, d := range c.Status.Devices {
		if id := deviceID(d.Driver, d.Pool, d.Device, nil); !before[id] || after[id] {
			devices = append(devices, d)
		}
	}
	c.Status.Devices = devices
}

// whole are the devices of an allocation, without regard to shares.
func whole(a *resourcev1.AllocationResult) map[string]bool {
	ids := map[string]bool{}
	if a != nil {
		for i := range a.Devices.Results {
			r := &a.Devices.Results[i]
			ids[deviceID(r.Driver, r.Pool, r.Device, nil)] = true
		}
	}
	return ids
}

// dropFromSlice does the same with what a driver publishes.
func dropFromSlice(s *resourcev1.ResourceSliceSpec) {
	s.PartitionTypeAttribute, s.SkipNodeOperations = nil, nil
	for i := range s.Devices {
		d := &s.Devices[i]
		if d.NodeAllocatableResources != nil {
			d.NodeAllocatableResources = nil
		}
		for j := range d.ConsumesCounters {
			if d.ConsumesCounters[j].CompatibilityGroups != nil {
				d.ConsumesCounters[j].CompatibilityGroups = nil
			}
		}
		for name, a := range d.Attributes {
			if a.IntValues != nil || a.BoolValues != nil || a.StringValues != nil || a.VersionValues != nil {
				a.IntValues, a.BoolValues, a.StringValues, a.VersionValues = nil, nil, nil, nil
				d.Attributes[name] = a
			}
		}
	}
}
