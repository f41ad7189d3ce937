package storage

import (
	"maps"

	storagev1 "k8s.io/api/storage/v1"
	storagev1beta1 "k8s.io/api/storage/v1beta1"

	"github.com/kemudi/kemudi/internal/resource"
)

// VolumeAttributesClasses describe what of a volume can be changed while it is used.
var VolumeAttributesClasses = resource.Define(resource.Spec[*storagev1.VolumeAttributesClass]{
	Names: resource.Names{Group: "storage.k8s.io", Version: "v1", Kind: "VolumeAttributesClass", Plural: "volumeattributesclasses", Short: []string{"vac"}},
	Validate: func(c, old *storagev1.VolumeAttributesClass, errs *resource.Errors) {
		validateProvisioner("driverName", c.DriverName, errs)
		validateParameters(c.Parameters, errs)
		if len(c.Parameters) == 0 {
			errs.Required("parameters", "must contain at least one key/value pair")
		}
		if old == nil {
			return
		}
		if c.DriverName != old.DriverName {
			errs.Forbidden("driverName", "updates to driverName are forbidden.")
		}
		if !maps.Equal(c.Parameters, old.Parameters) {
			errs.Forbidden("parameters", "updates to parameters are forbidden.")
		}
	},
	Columns: []resource.Column[*storagev1.VolumeAttributesClass]{{
		Name: "DriverName", Description: storagev1.VolumeAttributesClass{}.SwaggerDoc()["driverName"],
		Value: func(c *storagev1.VolumeAttributesClass) any { return c.DriverName },
	}},
	Versions: []resource.Version[*storagev1.VolumeAttributesClass]{resource.SameWire[*storagev1beta1.VolumeAttributesClass](resource.Version[*storagev1.VolumeAttributesClass]{
		Group: "storage.k8s.io", Version: "v1beta1",
		Deprecated: "storage.k8s.io/v1beta1 VolumeAttributesClass is deprecated in v1.34+, unavailable in v1.37+; use storage.k8s.io/v1 VolumeAttributesClass",
	})},
})
