package admissionregistration

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	admissionregistrationv1beta1 "k8s.io/api/admissionregistration/v1beta1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/core/check"
	"github.com/kemudi/kemudi/internal/resource"
)

// MutatingWebhookConfigurations are servers that may change or refuse what is written.
var MutatingWebhookConfigurations = resource.Define(resource.Spec[*admissionregistrationv1.MutatingWebhookConfiguration]{
	Names: resource.Names{
		Group: Group, Version: "v1", Kind: "MutatingWebhookConfiguration", Plural: "mutatingwebhookconfigurations", Categories: []string{"api-extensions"}, NameRule: apiName,
	},
	HasGeneration: true,
	Update:        resource.UpdateNeedsRevision,
	Default: func(c *admissionregistrationv1.MutatingWebhookConfiguration) {
		for i := range c.Webhooks {
			w := (*webhook)(&c.Webhooks[i])
			w.defaults(now)
			w.ReinvocationPolicy = or(w.ReinvocationPolicy, admissionregistrationv1.NeverReinvocationPolicy)
		}
	},
	Validate: validateMutating(strict),
	Warn: func(c, _ *admissionregistrationv1.MutatingWebhookConfiguration) []string {
		return warnOfUnasked(c.Webhooks)
	},
	Columns: []resource.Column[*admissionregistrationv1.MutatingWebhookConfiguration]{
		webhooksColumn(func(c *admissionregistrationv1.MutatingWebhookConfiguration) int { return len(c.Webhooks) }),
	},
	Versions: []resource.Version[*admissionregistrationv1.MutatingWebhookConfiguration]{
		resource.SameWire[*admissionregistrationv1beta1.MutatingWebhookConfiguration](resource.Version[*admissionregistrationv1.MutatingWebhookConfiguration]{
			Group: Group, Version: "v1beta1",
			Deprecated: "admissionregistration.k8s.io/v1beta1 MutatingWebhookConfiguration is deprecated in v1.16+, unavailable in v1.22+; use admissionregistration.k8s.io/v1 MutatingWebhookConfiguration",
			Default: func(obj resource.Object) {
				c := obj.(*admissionregistrationv1beta1.MutatingWebhookConfiguration)
				for i := range c.Webhooks {
					w := &c.Webhooks[i]
					legacy{
						&w.FailurePolicy, &w.MatchPolicy, &w.SideEffects, &w.TimeoutSeconds, &w.AdmissionReviewVersions,
					}.defaults()
				}
			},
			Validate: validateMutating(lenient),
		}),
	},
})

// MutatingWebhooks are the webhooks of a configuration.
func MutatingWebhooks(c *admissionregistrationv1.MutatingWebhookConfiguration) []admissionregistrationv1.MutatingWebhook {
	return c.Webhooks
}

func validateMutating(r rules) func(c, old *admissionregistrationv1.MutatingWebhookConfiguration, errs *resource.Errors) {
	return func(c, old *admissionregistrationv1.MutatingWebhookConfiguration, errs *resource.Errors) {
		var was []admissionregistrationv1.MutatingWebhook
		if old != nil {
			was = old.Webhooks
		}
		validateWebhooks(errs, c.Webhooks, was, r.of(old != nil, c.Webhooks, was))
		for i := range c.Webhooks {
			if p := c.Webhooks[i].ReinvocationPolicy; p != nil {
				check.OneOf(errs.At("webhooks[%d]", i), "reinvocationPolicy", *p, admissionregistrationv1.IfNeededReinvocationPolicy, admissionregistrationv1.NeverReinvocationPolicy)
			}
		}
	}
}

// webhooksColumn shows how many webhooks a configuration has.
func webhooksColumn[T resource.Object](count func(c T) int) resource.Column[T] {
	return resource.Column[T]{
		Name: "Webhooks", Type: "integer", Description: "Webhooks indicates the number of webhooks registered in this configuration",
		Value: func(c T) any { return int64(count(c)) },
	}
}

// or is what is set, or else the default.
func or[T any](p *T, def T) *T {
	if p == nil {
		return ptr.To(def)
	}
	return p
}
