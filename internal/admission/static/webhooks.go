package static

import (
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/api/admissionregistration"
	"github.com/kemudi/kemudi/internal/resource"
)

// Webhooks reads what lies in the directory of a plugin of webhooks, which asks about configurations of def.
func Webhooks(o *admission.Options, plugin string, def *resource.Def, dir string) (*Set, error) {
	return Open(o, Kinds{Plugin: plugin, Defs: []*resource.Def{def}, Check: checkWebhooks}, dir)
}

// checkWebhooks refuses webhooks at Services: a server that starts does not know where these are.
func checkWebhooks(obj resource.Object) error {
	var all []admissionregistrationv1.MutatingWebhook
	switch c := obj.(type) {
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		all = admissionregistration.MutatingWebhooks(c)
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		all = admissionregistration.ValidatingWebhooks(c)
	}
	for i := range all {
		w := &all[i]
		if w.ClientConfig.Service != nil {
			return fmt.Errorf("webhook %q in %q: clientConfig.service is not supported for static manifests; use clientConfig.url instead", w.Name, obj.GetName())
		}
		if w.ClientConfig.URL == nil || *w.ClientConfig.URL == "" {
			return fmt.Errorf("webhook %q in %q: clientConfig.url is required for static manifests", w.Name, obj.GetName())
		}
	}
	return nil
}
