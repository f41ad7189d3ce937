package networking

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	netutils "k8s.io/utils/net"

	"github.com/kemudi/kemudi/internal/api/core/check"
	"github.com/kemudi/kemudi/internal/resource"
)

// fieldNames are the names that the fields of backends have in a version, for the
// messages to those who use it.
type fieldNames struct {
	defaultBackend, defaultPath   string
	service, portName, portNumber string // below a backend
}

var namesOfV1 = fieldNames{
	defaultBackend: "defaultBackend", defaultPath: "spec.defaultBackend",
	service: "service.name", portName: "service.port.name", portNumber: "service.port.number",
}

// leniency is what an Ingress that is there may go on to have although it would
// not be let in today.
type leniency struct {
	secretNames   bool // of tls, of any form
	wildcardRules bool // anything behind hosts with a star
}

func leniencyFor(old *networkingv1.Ingress, names fieldNames) (l leniency) {
	if old == nil {
		return l
	}
	s := &old.Spec
	l.secretNames = slices.ContainsFunc(s.TLS, func(t networkingv1.IngressTLS) bool { return len(secretNameRefusals(t.SecretName)) > 0 })
	for i := range s.Rules {
		r := &s.Rules[i]
		if r.HTTP != nil && strings.Contains(r.Host, "*") {
			errs := resource.NewErrors()
			validatePaths(errs, r.HTTP, names)
			l.wildcardRules = l.wildcardRules || errs.Len() > 0
		}
	}
	return l
}

func secretNameRefusals(name string) []string {
	if name == "" {
		return nil
	}
	return utilvalidation.IsDNS1123Subdomain(name)
}

func validateIngress(obj, old *networkingv1.Ingress, errs *resource.Errors, names fieldNames) {
	s, l := &obj.Spec, leniencyFor(old, names)
	if len(s.Rules) == 0 && s.DefaultBackend == nil {
		errs.Invalid("spec", s.Rules, fmt.Sprintf("either `%s` or `rules` must be specified", names.defaultBackend))
	}
	if s.DefaultBackend != nil {
		validateBackend(errs.At("%s", names.defaultPath), s.DefaultBackend, names)
	}
	for i := range s.Rules {
		at, rule := errs.At("spec.rules[%d]", i), &s.Rules[i]
		validateHost(at, rule.Host)
		if rule.HTTP != nil && (!l.wildcardRules || !strings.Contains(rule.Host, "*")) {
			validatePaths(at, rule.HTTP, names)
		}
	}
	for i := range s.TLS {
		at := errs.At("spec.tls[%d]", i)
		for j, host := range s.TLS[i].Hosts {
			at.Refuse(fmt.Sprintf("hosts[%d]", j), host, hostRefusals(host))
		}
		if !l.secretNames {
			at.Refuse("secretName", s.TLS[i].SecretName, secretNameRefusals(s.TLS[i].SecretName))
		}
	}
	if s.IngressClassName != nil {
		check.DNSSubdomain(errs, "spec.ingressClassName", *s.IngressClassName)
	}
	if class, ok := obj.Annotations[classAnnotation]; ok && old == nil && s.IngressClassName != nil && class != *s.IngressClassName {
		errs.Invalid("annotations.kubernetes.io/ingress.class", class, "must match `ingressClassName` when both are specified")
	}
}

func hostRefusals(host string) []string {
	if strings.Contains(host, "*") {
		return utilvalidation.IsWildcardDNS1123Subdomain(host)
	}
	return utilvalidation.IsDNS1123Subdomain(host)
}

func validateHost(errs *resource.Errors, host string) {
	if host == "" {
		return
	}
	if netutils.ParseIPSloppy(host) != nil {
		errs.Invalid("host", host, "must be a DNS name, not an IP address")
	}
	errs.Refuse("host", host, hostRefusals(host))
}

func validatePaths(errs *resource.Errors, http *networkingv1.HTTPIngressRuleValue, names fieldNames) {
	if len(http.Paths) == 0 {
		errs.Required("http.paths", "")
	}
	for i := range http.Paths {
		at, p := errs.At("http.paths[%d]", i), &http.Paths[i]
		if p.PathType == nil {
			at.Required("pathType", "pathType must be specified")
			continue
		}
		validatePath(at, p)
		validateBackend(at.At("backend"), &p.Backend, names)
	}
}

func validatePath(errs *resource.Errors, p *networkingv1.HTTPIngressPath) {
	absolute := strings.HasPrefix(p.Path, "/")
	switch *p.PathType {
	case networkingv1.PathTypeExact, networkingv1.PathTypePrefix:
		if !absolute {
			errs.Invalid("path", p.Path, "must be an absolute path")
		}
		for _, part := range []string{"//", "/./", "/../", "%2f", "%2F"} {
			if strings.Contains(p.Path, part) {
				errs.Invalid("path", p.Path, fmt.Sprintf("must not contain '%s'", part))
			}
		}
		for _, end := range []string{"/..", "/."} {
			if strings.HasSuffix(p.Path, end) {
				errs.Invalid("path", p.Path, fmt.Sprintf("cannot end with '%s'", end))
			}
		}
	case networkingv1.PathTypeImplementationSpecific:
		if p.Path != "" && !absolute {
			errs.Invalid("path", p.Path, "must be an absolute path")
		}
	default:
		resource.NotSupported(errs, "pathType", *p.PathType, networkingv1.PathTypeExact, networkingv1.PathTypeImplementationSpecific, networkingv1.PathTypePrefix)
	}
}

func validateBackend(errs *resource.Errors, b *networkingv1.IngressBackend, names fieldNames) {
	switch {
	case b.Resource != nil && b.Service != nil:
		errs.Invalid("", "", "cannot set both resource and service backends")
	case b.Resource != nil:
		validateObject(errs.At("resource"), b.Resource)
	case b.Service != nil:
		validateServiceBackend(errs, b.Service, names)
	default:
		errs.Invalid("", "", "resource or service backend is required")
	}
}

func validateServiceBackend(errs *resource.Errors, s *networkingv1.IngressServiceBackend, names fieldNames) {
	if s.Name == "" {
		errs.Required(names.service, "")
	} else {
		errs.Refuse(names.service, s.Name, resource.DNS1123Label(s.Name, false))
	}
	switch port := &s.Port; {
	case port.Name != "" && port.Number != 0:
		errs.Invalid("", "", "cannot set both port name & port number")
	case port.Name != "":
		errs.Refuse(names.portName, port.Name, utilvalidation.IsValidPortName(port.Name))
	case port.Number != 0:
		check.Port(errs, names.portNumber, port.Number)
	default:
		errs.Required("", "port name or number is required")
	}
}

// validateObject checks a reference to an object of any kind.
func validateObject(errs *resource.Errors, ref *corev1.TypedLocalObjectReference) {
	if ref.APIGroup != nil {
		check.DNSSubdomain(errs, "apiGroup", *ref.APIGroup)
	}
	segment(errs, "kind", ref.Kind)
	segment(errs, "name", ref.Name)
}

// segment refuses an empty word, and one that cannot stand in a URL.
func segment(errs *resource.Errors, at, value string) {
	if value == "" {
		errs.Required(at, "")
		return
	}
	errs.Refuse(at, value, content.IsPathSegmentName(value))
}

func validateIngressStatus(obj, old *networkingv1.Ingress, errs *resource.Errors) {
	var before []string
	for i := range old.Status.LoadBalancer.Ingress {
		before = append(before, old.Status.LoadBalancer.Ingress[i].IP)
	}
	for i := range obj.Status.LoadBalancer.Ingress {
		at, p := errs.At("status.loadBalancer.ingress[%d]", i), &obj.Status.LoadBalancer.Ingress[i]
		if p.IP != "" {
			check.IP(at, "ip", p.IP, before...)
		}
		if p.Hostname == "" {
			continue
		}
		check.DNSSubdomain(at, "hostname", p.Hostname)
		if netutils.ParseIPSloppy(p.Hostname) != nil {
			at.Invalid("hostname", p.Hostname, "must be a DNS name, not an IP address")
		}
	}
}
