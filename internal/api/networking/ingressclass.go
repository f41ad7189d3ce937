package networking

import (
	networkingv1 "k8s.io/api/networking/v1"
	networkingv1beta1 "k8s.io/api/networking/v1beta1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/core/check"
	"github.com/kemudi/kemudi/internal/resource"
)

// IngressClasses say which program obeys the Ingresses that name them.
var IngressClasses = resource.Define(resource.Spec[*networkingv1.IngressClass]{
	Names:         resource.Names{Group: "networking.k8s.io", Version: "v1", Kind: "IngressClass", Plural: "ingressclasses"},
	HasGeneration: true,
	Default: func(c *networkingv1.IngressClass) {
		if p := c.Spec.Parameters; p != nil && p.Scope == nil {
			p.Scope = ptr.To(networkingv1.IngressClassParametersReferenceScopeCluster)
		}
	},
	Validate: validateIngressClass,
	Columns: []resource.Column[*networkingv1.IngressClass]{
		{Name: "Name", Format: "name", Value: func(c *networkingv1.IngressClass) any {
			if IsDefaultClass(c) {
				return c.Name + " (default)"
			}
			return c.Name
		}},
		{Name: "Controller", Description: "Controller that is responsible for handling corresponding resources", Value: func(c *networkingv1.IngressClass) any {
			return c.Spec.Controller
		}},
		{Name: "Parameters", Description: "A reference to a resource with additional parameters", Value: func(c *networkingv1.IngressClass) any {
			return parametersText(c.Spec.Parameters)
		}},
	},
	Versions: []resource.Version[*networkingv1.IngressClass]{resource.SameWire[*networkingv1beta1.IngressClass](resource.Version[*networkingv1.IngressClass]{
		Group: "networking.k8s.io", Version: "v1beta1",
		Deprecated: "networking.k8s.io/v1beta1 IngressClass is deprecated in v1.19+, unavailable in v1.22+; use networking.k8s.io/v1 IngressClassList",
	})},
})

// IsDefaultClass reports whether a class is that of the Ingresses which name none.
func IsDefaultClass(c *networkingv1.IngressClass) bool {
	return c.Annotations[networkingv1.AnnotationIsDefaultIngressClass] == "true"
}

// DefaultClass is the newest class that is the default, nil if none is.
func DefaultClass(classes []*networkingv1.IngressClass) (chosen *networkingv1.IngressClass) {
	for _, c := range classes {
		if IsDefaultClass(c) && (chosen == nil || newer(c, chosen)) {
			chosen = c
		}
	}
	return chosen
}

func newer(a, b *networkingv1.IngressClass) bool {
	if a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.Name < b.Name
	}
	return b.CreationTimestamp.Before(&a.CreationTimestamp)
}

func parametersText(p *networkingv1.IngressClassParametersReference) string {
	switch {
	case p == nil:
		return "<none>"
	case p.APIGroup != nil:
		return p.Kind + "." + *p.APIGroup + "/" + p.Name
	}
	return p.Kind + "/" + p.Name
}

func validateIngressClass(c, old *networkingv1.IngressClass, errs *resource.Errors) {
	const longest = 250
	if old != nil && c.Spec.Controller != old.Spec.Controller {
		errs.Immutable("spec.controller", c.Spec.Controller)
	}
	if c.Spec.Controller == "" {
		errs.Required("spec.controller", "")
	} else {
		if len(c.Spec.Controller) > longest {
			errs.TooLong("spec.controller", longest)
		}
		errs.Add(utilvalidation.IsDomainPrefixedPath(errs.Path("spec.controller"), c.Spec.Controller)...)
	}
	if c.Spec.Parameters != nil {
		validateParameters(errs.At("spec.parameters"), c.Spec.Parameters)
	}
}

func validateParameters(errs *resource.Errors, p *networkingv1.IngressClassParametersReference) {
	if p.APIGroup != nil {
		check.DNSSubdomain(errs, "apiGroup", *p.APIGroup)
	}
	segment(errs, "kind", p.Kind)
	segment(errs, "name", p.Name)
	if p.Scope == nil {
		errs.Required("scope", "")
		return
	}
	switch *p.Scope {
	case networkingv1.IngressClassParametersReferenceScopeCluster:
		if p.Namespace != nil {
			errs.Forbidden("namespace", "`parameters.scope` is set to 'Cluster'")
		}
	case networkingv1.IngressClassParametersReferenceScopeNamespace:
		if p.Namespace == nil {
			errs.Required("namespace", "`parameters.scope` is set to 'Namespace'")
		} else {
			check.DNSLabel(errs, "namespace", *p.Namespace)
		}
	default:
		resource.NotSupported(errs, "scope", *p.Scope, networkingv1.IngressClassParametersReferenceScopeCluster, networkingv1.IngressClassParametersReferenceScopeNamespace)
	}
}
