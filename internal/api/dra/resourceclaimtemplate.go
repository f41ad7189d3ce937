package dra

import (
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/kemudi/kemudi/internal/api/core/check"
	"github.com/kemudi/kemudi/internal/resource"
)

// ResourceClaimTemplates are what claims are made from for single pods.
var ResourceClaimTemplates = resource.Define(resource.Spec[*resourcev1.ResourceClaimTemplate]{
	Names:   resource.Names{Group: "resource.k8s.io", Version: "v1", Kind: "ResourceClaimTemplate", Plural: "resourceclaimtemplates", Namespaced: true},
	Default: func(t *resourcev1.ResourceClaimTemplate) { defaultClaim(&t.Spec.Spec) },
	Prepare: func(t, _ *resourcev1.ResourceClaimTemplate) { dropFromClaim(&t.Spec.Spec) },
	Validate: func(t, old *resourcev1.ResourceClaimTemplate, errs *resource.Errors) {
		if old != nil {
			// What cannot change needs no other check.
			if !equality.Semantic.DeepEqual(t.Spec, old.Spec) {
				errs.Immutable("spec", t.Spec)
			}
			return
		}
		check.TemplateMeta(errs.At("spec.metadata"), &t.Spec.ObjectMeta)
		validateClaimSpec(errs.At("spec.spec.devices"), &t.Spec.Spec.Devices)
	},
	Versions: []resource.Version[*resourcev1.ResourceClaimTemplate]{
		templateV1beta1,
		resource.SameWire[*resourcev1beta2.ResourceClaimTemplate](resource.Version[*resourcev1.ResourceClaimTemplate]{
			Group: "resource.k8s.io", Version: "v1beta2", OffByDefault: true,
			Deprecated: "resource.k8s.io/v1beta2 ResourceClaimTemplate is deprecated in v1.36+, unavailable in v1.39+",
		}),
	},
})
