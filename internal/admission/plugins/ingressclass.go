package plugins

import (
	"context"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/api/networking"
)

// defaultIngressClass gives new Ingresses that say nothing of a class the default
// one, if there is one: the newest, if there are several.
func defaultIngressClass(o *admission.Options) admission.Plugin {
	classes := admission.Reader(o, networking.IngressClasses)
	return admission.Plugin{Name: "DefaultIngressClass", Mutate: func(_ context.Context, a *admission.Attributes) error {
		in, ok := a.Object.(*networkingv1.Ingress)
		if !ok || !a.Is(networking.Ingresses.Def, "", admission.Create) || networking.HasClass(in) {
			return nil
		}
		if c := networking.DefaultClass(classes.List("", nil)); c != nil {
			in.Spec.IngressClassName = ptr.To(c.Name)
		}
		return nil
	}}
}
