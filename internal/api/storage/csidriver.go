package storage

import (
	"fmt"
	"slices"
	"strings"

	storagev1 "k8s.io/api/storage/v1"
	storagev1beta1 "k8s.io/api/storage/v1beta1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/resource"
)

// CSIDrivers tell what a CSI driver can do.
var CSIDrivers = resource.Define(resource.Spec[*storagev1.CSIDriver]{
	Names:         resource.Names{Group: "storage.k8s.io", Version: "v1", Kind: "CSIDriver", Plural: "csidrivers"},
	HasGeneration: true, Update: resource.UpdateNeedsRevision,
	Default:  defaultCSIDriver,
	Validate: validateCSIDriver,
	Columns: []resource.Column[*storagev1.CSIDriver]{
		{Name: "AttachRequired", Type: "boolean", Description: storagev1.CSIDriverSpec{}.SwaggerDoc()["attachRequired"], Value: func(d *storagev1.CSIDriver) any { return Attaches(d) }},
		{Name: "PodInfoOnMount", Type: "boolean", Description: storagev1.CSIDriverSpec{}.SwaggerDoc()["podInfoOnMount"], Value: func(d *storagev1.CSIDriver) any { return ptr.Deref(d.Spec.PodInfoOnMount, false) }},
		{Name: "StorageCapacity", Type: "boolean", Description: storagev1.CSIDriverSpec{}.SwaggerDoc()["storageCapacity"], Value: func(d *storagev1.CSIDriver) any { return ptr.Deref(d.Spec.StorageCapacity, false) }},
		{Name: "TokenRequests", Description: storagev1.CSIDriverSpec{}.SwaggerDoc()["tokenRequests"], Value: func(d *storagev1.CSIDriver) any { return audiences(d.Spec.TokenRequests) }},
		{Name: "RequiresRepublish", Type: "boolean", Description: storagev1.CSIDriverSpec{}.SwaggerDoc()["requiresRepublish"], Value: func(d *storagev1.CSIDriver) any { return ptr.Deref(d.Spec.RequiresRepublish, false) }},
		{Name: "Modes", Description: storagev1.CSIDriverSpec{}.SwaggerDoc()["volumeLifecycleModes"], Value: func(d *storagev1.CSIDriver) any { return modes(d.Spec.VolumeLifecycleModes) }},
	},
	Versions: []resource.Version[*storagev1.CSIDriver]{resource.SameWire[*storagev1beta1.CSIDriver](resource.Version[*storagev1.CSIDriver]{
		Group: "storage.k8s.io", Version: "v1beta1",
		Deprecated: "storage.k8s.io/v1beta1 CSIDriver is deprecated in v1.19+, unavailable in v1.22+; use storage.k8s.io/v1 CSIDriver",
	})},
})

func defaultCSIDriver(d *storagev1.CSIDriver) {
	s := &d.Spec
	if s.AttachRequired == nil {
		s.AttachRequired = ptr.To(true)
	}
	if s.PodInfoOnMount == nil {
		s.PodInfoOnMount = ptr.To(false)
	}
	if s.StorageCapacity == nil {
		s.StorageCapacity = ptr.To(false)
	}
	if s.FSGroupPolicy == nil {
		s.FSGroupPolicy = ptr.To(storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy)
	}
	if len(s.VolumeLifecycleModes) == 0 {
		s.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}
	}
	if s.RequiresRepublish == nil {
		s.RequiresRepublish = ptr.To(false)
	}
	if s.SELinuxMount == nil {
		s.SELinuxMount = ptr.To(false)
	}
}

func validateCSIDriver(obj, old *storagev1.CSIDriver, errs *resource.Errors) {
	s := &obj.Spec
	switch p := ptr.Deref(s.FSGroupPolicy, ""); p {
	case "", storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy, storagev1.FileFSGroupPolicy, storagev1.NoneFSGroupPolicy:
	default:
		resource.NotSupported(errs, "spec.fsGroupPolicy", p, storagev1.FileFSGroupPolicy, storagev1.NoneFSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy)
	}
	validateTokenRequests(s.TokenRequests, errs)
	for _, m := range s.VolumeLifecycleModes {
		if m != storagev1.VolumeLifecyclePersistent && m != storagev1.VolumeLifecycleEphemeral {
			resource.NotSupported(errs, "spec.volumeLifecycleModes", m, storagev1.VolumeLifecyclePersistent, storagev1.VolumeLifecycleEphemeral)
		}
	}
	if p := s.NodeAllocatableUpdatePeriodSeconds; p != nil && *p < 10 {
		errs.Invalid("spec.nodeAllocatableUpdatePeriodSeconds", *p, "must be greater than or equal to 10 seconds")
	}
	if s.ServiceAccountTokenInSecrets != nil && len(s.TokenRequests) == 0 {
		errs.Invalid("spec.serviceAccountTokenInSecrets", *s.ServiceAccountTokenInSecrets, "serviceAccountTokenInSecrets is set but no tokenRequests are specified")
	}
	if old == nil {
		return
	}
	if ptr.Deref(s.AttachRequired, true) != ptr.Deref(old.Spec.AttachRequired, true) {
		// Clients know this field under this name.
		errs.Immutable("spec.attachedRequired", s.AttachRequired)
	}
	if !slices.Equal(s.VolumeLifecycleModes, old.Spec.VolumeLifecycleModes) {
		errs.Immutable("spec.volumeLifecycleModes", s.VolumeLifecycleModes)
	}
}

func validateTokenRequests(requests []storagev1.TokenRequest, errs *resource.Errors) {
	var seen []string
	for i, r := range requests {
		at := errs.At("spec.tokenRequests[%d]", i)
		if slices.Contains(seen, r.Audience) {
			at.Duplicate("audience", r.Audience)
			continue
		}
		seen = append(seen, r.Audience)
		if r.ExpirationSeconds == nil {
			continue
		}
		if *r.ExpirationSeconds < 600 {
			at.Invalid("expirationSeconds", *r.ExpirationSeconds, "may not specify a duration less than 10 minutes")
		}
		if *r.ExpirationSeconds > 1<<32 {
			at.Invalid("expirationSeconds", *r.ExpirationSeconds, "may not specify a duration larger than 2^32 seconds")
		}
	}
}

func audiences(requests []storagev1.TokenRequest) string {
	if len(requests) == 0 {
		return "<unset>"
	}
	list := make([]string, len(requests))
	for i, r := range requests {
		list[i] = r.Audience
	}
	return strings.Join(list, ",")
}

func modes(list []storagev1.VolumeLifecycleMode) string {
	if len(list) == 0 {
		return "<none>"
	}
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(list), " ", ","), "[]")
}

// Attaches reports whether volumes of a driver must be attached before a node uses them. One that says nothing, or is
// not known (nil), does.
func Attaches(d *storagev1.CSIDriver) bool { return d == nil || ptr.Deref(d.Spec.AttachRequired, true) }
