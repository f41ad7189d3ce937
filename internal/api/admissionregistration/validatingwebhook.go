package admissionregistration

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	admissionregistrationv1beta1 "k8s.io/api/admissionregistration/v1beta1"

	"github.com/kemudi/kemudi/internal/resource"
)

// ValidatingWebhookConfigurations are servers that may refuse what is written.
var ValidatingWebhookConfigurations = resource.Define(resource.Spec[*admissionregistrationv1.ValidatingWebhookConfiguration]{
	Names: resource.Names{
		Group: Group, Version: "v1", Kind: "ValidatingWebhookConfiguration", Plural: "validatingwebhookconfigurations", Categories: []string{"api-extensions"}, NameRule: apiName,
	},
	HasGeneration: true,
	Update:        resource.UpdateNeedsRevision,
	Default: func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
		for i := range c.Webhooks {
			w := webhook(widened(&c.Webhooks[i]))
			w.defaults(now)
			c.Webhooks[i] = narrowed(&w)
		}
	},
	Validate: validateValidating(strict),
	Warn: func(c, _ *admissionregistrationv1.ValidatingWebhookConfiguration) []string {
		return warnOfUnasked(ValidatingWebhooks(c))
	},
	Columns: []resource.Column[*admissionregistrationv1.ValidatingWebhookConfiguration]{
		webhooksColumn(func(c *admissionregistrationv1.ValidatingWebhookConfiguration) int { return len(c.Webhooks) }),
	},
	Versions: []resource.Version[*admissionregistrationv1.ValidatingWebhookConfiguration]{
		resource.SameWire[*admissionregistrationv1beta1.ValidatingWebhookConfiguration](resource.Version[*admissionregistrationv1.ValidatingWebhookConfiguration]{
			Group: Group, Version: "v1beta1",
			Deprecated: "admissionregistration.k8s.io/v1beta1 ValidatingWebhookConfiguration is deprecated in v1.16+, unavailable in v1.22+; use admissionregistration.k8s.io/v1 ValidatingWebhookConfiguration",
			Default: func(obj resource.Object) {
				c := obj.(*admissionregistrationv1beta1.ValidatingWebhookConfiguration)
				for i := range c.Webhooks {
					w := &c.Webhooks[i]
					legacy{
						&w.FailurePolicy, &w.MatchPolicy, &w.SideEffects, &w.TimeoutSeconds, &w.AdmissionReviewVersions,
					}.defaults()
				}
			},
			Validate: validateValidating(lenient),
		}),
	},
})

// ValidatingWebhooks are the webhooks of a configuration, in the form of mutating ones, which
// say the same and more.
func ValidatingWebhooks(c *admissionregistrationv1.ValidatingWebhookConfiguration) []admissionregistrationv1.MutatingWebhook {
	if c == nil {
		return nil
	}
	all := make([]admissionregistrationv1.MutatingWebhook, len(c.Webhooks))
	for i := range c.Webhooks {
		all[i] = widened(&c.Webhooks[i])
	}
	return all
}

func validateValidating(r rules) func(c, old *admissionregistrationv1.ValidatingWebhookConfiguration, errs *resource.Errors) {
	return func(c, old *admissionregistrationv1.ValidatingWebhookConfiguration, errs *resource.Errors) {
		is, was := ValidatingWebhooks(c), ValidatingWebhooks(old)
		validateWebhooks(errs, is, was, r.of(old != nil, is, was))
	}
}

// widened is a validating webhook as a mutating one, and narrowed the reverse.
func widened(w *admissionregistrationv1.ValidatingWebhook) admissionregistrationv1.MutatingWebhook {
	return admissionregistrationv1.MutatingWebhook{
		Name: w.Name, ClientConfig: w.ClientConfig, Rules: w.Rules, FailurePolicy: w.FailurePolicy, MatchPolicy: w.MatchPolicy,
		NamespaceSelector: w.NamespaceSelector, ObjectSelector: w.ObjectSelector, SideEffects: w.SideEffects, TimeoutSeconds: w.TimeoutSeconds,
		AdmissionReviewVersions: w.AdmissionReviewVersions, MatchConditions: w.MatchConditions,
	}
}

func narrowed(w *webhook) admissionregistrationv1.ValidatingWebhook {
	return admissionregistrationv1.ValidatingWebhook{
		Name: w.Name, ClientConfig: w.ClientConfig, Rules: w.Rules, FailurePolicy: w.FailurePolicy, MatchPolicy: w.MatchPolicy,
		NamespaceSelector: w.NamespaceSelector, ObjectSelector: w.ObjectSelector, SideEffects: w.SideEffects, TimeoutSeconds: w.TimeoutSeconds,
		AdmissionReviewVersions: w.AdmissionReviewVersions, MatchConditions: w.MatchConditions,
	}
}
