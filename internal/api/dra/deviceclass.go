package dra

import (
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1beta1 "k8s.io/api/resource/v1beta1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/kemudi/kemudi/internal/api/core/check"
	"github.com/kemudi/kemudi/internal/resource"
)

// DeviceClasses are what claims ask for by name: devices that satisfy selectors, and
// how their drivers are to set them up.
var DeviceClasses = resource.Define(resource.Spec[*resourcev1.DeviceClass]{
	Names:         resource.Names{Group: "resource.k8s.io", Version: "v1", Kind: "DeviceClass", Plural: "deviceclasses"},
	HasGeneration: true,
	Validate:      validateDeviceClass,
	Versions: []resource.Version[*resourcev1.DeviceClass]{
		resource.SameWire[*resourcev1beta1.DeviceClass](resource.Version[*resourcev1.DeviceClass]{
			Group: "resource.k8s.io", Version: "v1beta1", OffByDefault: true,
			Deprecated: "resource.k8s.io/v1beta1 DeviceClass is deprecated in v1.35+, unavailable in v1.38+",
		}),
		resource.SameWire[*resourcev1beta2.DeviceClass](resource.Version[*resourcev1.DeviceClass]{
			Group: "resource.k8s.io", Version: "v1beta2", OffByDefault: true,
			Deprecated: "resource.k8s.io/v1beta2 DeviceClass is deprecated in v1.36+, unavailable in v1.39+",
		}),
	},
})

func validateDeviceClass(c, old *resourcev1.DeviceClass, errs *resource.Errors) {
	s := &c.Spec
	// What is stored was valid once. Any change, also of the order alone, is a new list.
	var sameSelectors, sameConfig bool
	if old != nil {
		sameSelectors = equality.Semantic.DeepEqual(s.Selectors, old.Spec.Selectors)
		sameConfig = equality.Semantic.DeepEqual(s.Config, old.Spec.Config)
	}
	checkSelectors(errs.At("spec"), s.Selectors, sameSelectors)
	if atMost(errs, "spec.config", len(s.Config), resourcev1.DeviceConfigMaxSize) {
		for i := range s.Config {
			checkConfiguration(errs.At("spec.config[%d]", i), &s.Config[i].DeviceConfiguration, sameConfig)
		}
	}
	if name := s.ExtendedResourceName; name != nil && !check.IsExtendedResource(corev1.ResourceName(*name)) {
		errs.Invalid("spec.extendedResourceName", *name, "must be a valid extended resource name")
	}
}
