package dra

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/core/check"
	"github.com/kemudi/kemudi/internal/api/core/podspec"
	"github.com/kemudi/kemudi/internal/resource"
)

func validateClaimStatus(c, old *resourcev1.ResourceClaim, errs *resource.Errors) {
	s, names := &c.Status, namesOf(&c.Spec.Devices)
	validateReservations(errs.At("status"), c, old)
	devices := allocated(s.Allocation)
	for i := range s.Devices {
		validateDeviceStatus(errs.At("status.devices[%d]", i), &s.Devices[i], devices)
	}
	unique(errs, "status.devices", s.Devices, func(d *resourcev1.AllocatedDeviceStatus) string { return statusID(d) })
	switch {
	case s.Allocation == nil:
	case old.Status.Allocation == nil:
		validateAllocation(errs.At("status.allocation"), s.Allocation, names)
	case !equality.Semantic.DeepEqual(s.Allocation, old.Status.Allocation):
		errs.Immutable("status.allocation", s.Allocation)
	}
}

// validateReservations checks who may use a claim. While it is being deleted nobody
// new may.
func validateReservations(errs *resource.Errors, c, old *resourcev1.ResourceClaim) {
	list := c.Status.ReservedFor
	if atMost(errs, "reservedFor", len(list), resourcev1.ResourceClaimReservedForMaxSize) {
		for i := range list {
			at := errs.At("reservedFor[%d]", i)
			check.Required(at, "resource", list[i].Resource)
			check.Required(at, "name", list[i].Name)
			check.Required(at, "uid", string(list[i].UID))
		}
		unique(errs, "reservedFor", list, func(r *resourcev1.ResourceClaimConsumerReference) string { return string(r.UID) })
	}
	isNew := func(r resourcev1.ResourceClaimConsumerReference) bool {
		return !slices.Contains(old.Status.ReservedFor, r)
	}
	switch {
	case len(list) == 0:
	case c.Status.Allocation == nil:
		errs.Forbidden("reservedFor", "may not be specified when `allocated` is not set")
	case c.DeletionTimestamp != nil && slices.ContainsFunc(list, isNew):
		errs.Forbidden("reservedFor", "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set")
	}
}

// deviceID is what a device is called in a claim. A share tells apart who has parts of
// the same device.
func deviceID(driver, pool, device string, share *string) string {
	id := driver + "/" + pool + "/" + device
	if share != nil {
		id += "/" + *share
	}
	return id
}

func resultID(r *resourcev1.DeviceRequestAllocationResult) string {
	return deviceID(r.Driver, r.Pool, r.Device, (*string)(r.ShareID))
}

func statusID(d *resourcev1.AllocatedDeviceStatus) string {
	return deviceID(d.Driver, d.Pool, d.Device, d.ShareID)
}

// allocated are the devices of an allocation.
func allocated(a *resourcev1.AllocationResult) map[string]bool {
	ids := map[string]bool{}
	if a != nil {
		for i := range a.Devices.Results {
			ids[resultID(&a.Devices.Results[i])] = true
		}
	}
	return ids
}

// validateAllocation checks a new allocation. One that is stored does not change, and
// may have been made when less was asked of it.
func validateAllocation(errs *resource.Errors, a *resourcev1.AllocationResult, names requestNames) {
	if atMost(errs, "devices.results", len(a.Devices.Results), resourcev1.AllocationResultsMaxSize) {
		for i := range a.Devices.Results {
			r, at := &a.Devices.Results[i], errs.At("devices.results[%d]", i)
			names.check(at, "request", r.Request)
			checkDriver(at, "driver", r.Driver)
			checkPool(at, "pool", r.Pool)
			check.DNSLabel(at, "device", r.Device)
			checkBinding(at, r.BindingConditions, r.BindingFailureConditions)
			checkTolerations(at, r.Tolerations)
			checkShare(at, (*string)(r.ShareID))
		}
	}
	// Those of the classes and those of the claim.
	if atMost(errs, "devices.config", len(a.Devices.Config), 2*resourcev1.DeviceConfigMaxSize) {
		for i := range a.Devices.Config {
			c, at := &a.Devices.Config[i], errs.At("devices.config[%d]", i)
			check.RequiredOneOf(at, "source", c.Source, resourcev1.AllocationConfigSourceClaim, resourcev1.AllocationConfigSourceClass)
			names.checkAll(at, c.Requests)
			checkConfiguration(at, &c.DeviceConfiguration, false)
		}
	}
	if a.NodeSelector != nil {
		podspec.ValidateNodeSelector(errs.At("nodeSelector"), a.NodeSelector)
	}
}

func checkShare(errs *resource.Errors, share *string) {
	id := ptr.Deref(share, "")
	if share == nil {
		return
	}
	if err := uuid.Validate(id); err != nil {
		errs.Invalid("shareID", id, fmt.Sprintf("error validating uid: %v", err))
	} else if len(id) != 36 || id != strings.ToLower(id) {
		errs.Invalid("shareID", id, "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase hexadecimal characters")
	}
}

func validateDeviceStatus(errs *resource.Errors, d *resourcev1.AllocatedDeviceStatus, devices map[string]bool) {
	checkDriver(errs, "driver", d.Driver)
	checkPool(errs, "pool", d.Pool)
	check.DNSLabel(errs, "device", d.Device)
	checkShare(errs, d.ShareID)
	if id := statusID(d); !devices[id] {
		errs.Invalid("", id, "must be an allocated device in the claim")
	}
	atMost(errs, "conditions", len(d.Conditions), resourcev1.AllocatedDeviceStatusMaxConditions)
	errs.Add(metavalidation.ValidateConditions(d.Conditions, errs.Path("conditions"))...)
	if d.Data != nil && len(d.Data.Raw) > 0 {
		checkRaw(errs, "data", d.Data, resourcev1.AllocatedDeviceStatusDataMaxLength)
	}
	n := d.NetworkData
	if n == nil {
		return
	}
	if len(n.InterfaceName) > resourcev1.NetworkDeviceDataInterfaceNameMaxLength {
		errs.TooLong("networkData.interfaceName", resourcev1.NetworkDeviceDataInterfaceNameMaxLength)
	}
	if len(n.HardwareAddress) > resourcev1.NetworkDeviceDataHardwareAddressMaxLength {
		errs.TooLong("networkData.hardwareAddress", resourcev1.NetworkDeviceDataHardwareAddressMaxLength)
	}
	if atMost(errs, "networkData.ips", len(n.IPs), resourcev1.NetworkDeviceDataMaxIPs) {
		for i, ip := range n.IPs {
			errs.Add(validation.IsValidInterfaceAddress(errs.Path("networkData.ips").Index(i), ip)...)
		}
		unique(errs, "networkData.ips", n.IPs, itself)
	}
}
