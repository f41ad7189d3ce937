package networking

import (
	corev1 "k8s.io/api/core/v1"
	extensionsv1beta1 "k8s.io/api/extensions/v1beta1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	netutils "k8s.io/utils/net"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/core/check"
	"github.com/kemudi/kemudi/internal/resource"
)

// NetworkPolicies say which traffic the pods that they select may have.
var NetworkPolicies = resource.Define(resource.Spec[*networkingv1.NetworkPolicy]{
	Names: resource.Names{
		Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy", Plural: "networkpolicies", Short: []string{"netpol"}, Namespaced: true,
	},
	HasGeneration: true,
	Default:       defaultNetworkPolicy,
	Validate:      validateNetworkPolicy,
	Warn:          warnNetworkPolicy,
	Columns: []resource.Column[*networkingv1.NetworkPolicy]{{
		Name: "Pod-Selector", Description: networkingv1.NetworkPolicySpec{}.SwaggerDoc()["podSelector"],
		Value: func(p *networkingv1.NetworkPolicy) any { return metav1.FormatLabelSelector(&p.Spec.PodSelector) },
	}},
	Versions: []resource.Version[*networkingv1.NetworkPolicy]{resource.SameWire[*extensionsv1beta1.NetworkPolicy](resource.Version[*networkingv1.NetworkPolicy]{
		Group: "extensions", Version: "v1beta1",
		Deprecated: "extensions/v1beta1 NetworkPolicy is deprecated in v1.9+, unavailable in v1.16+; use networking.k8s.io/v1 NetworkPolicy",
	})},
})

// defaultNetworkPolicy says for which direction a policy is that does not say so:
// for what comes in always, for what goes out if it has rules for that.
func defaultNetworkPolicy(p *networkingv1.NetworkPolicy) {
	s := &p.Spec
	for i := range s.Ingress {
		defaultPolicyPorts(s.Ingress[i].Ports)
	}
	for i := range s.Egress {
		defaultPolicyPorts(s.Egress[i].Ports)
	}
	if len(s.PolicyTypes) > 0 {
		return
	}
	s.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
	if len(s.Egress) > 0 {
		s.PolicyTypes = append(s.PolicyTypes, networkingv1.PolicyTypeEgress)
	}
}

func defaultPolicyPorts(ports []networkingv1.NetworkPolicyPort) {
	for i := range ports {
		if ports[i].Protocol == nil {
			ports[i].Protocol = ptr.To(corev1.ProtocolTCP)
		}
	}
}

// kept is what a policy may go on to have because it had it before, although it
// would not be let in today.
type kept struct {
	ranges    []string // of addresses
	selectors metavalidation.LabelSelectorValidationOptions
}

func keptOf(old *networkingv1.NetworkPolicy) (k kept) {
	if old == nil {
		return k
	}
	eachBlock(old, func(_ *resource.Errors, b *networkingv1.IPBlock) {
		k.ranges = append(append(k.ranges, b.CIDR), b.Except...)
	})
	bad := metavalidation.ValidateLabelSelector(&old.Spec.PodSelector, metavalidation.LabelSelectorValidationOptions{}, nil)
	k.selectors.AllowInvalidLabelValueInSelector = len(bad) > 0
	return k
}

// eachBlock shows all address ranges of a policy, with where they are.
func eachBlock(p *networkingv1.NetworkPolicy, show func(at *resource.Errors, b *networkingv1.IPBlock)) {
	errs := resource.NewErrors()
	for i := range p.Spec.Ingress {
		for j := range p.Spec.Ingress[i].From {
			if b := p.Spec.Ingress[i].From[j].IPBlock; b != nil {
				show(errs.At("spec.ingress[%d].from[%d].ipBlock", i, j), b)
			}
		}
	}
	for i := range p.Spec.Egress {
		for j := range p.Spec.Egress[i].To {
			if b := p.Spec.Egress[i].To[j].IPBlock; b != nil {
				show(errs.At("spec.egress[%d].to[%d].ipBlock", i, j), b)
			}
		}
	}
}

func validateNetworkPolicy(p, old *networkingv1.NetworkPolicy, errs *resource.Errors) {
	s, k := &p.Spec, keptOf(old)
	errs.Add(metavalidation.ValidateLabelSelector(&s.PodSelector, k.selectors, errs.Path("spec.podSelector"))...)
	for i := range s.Ingress {
		for j := range s.Ingress[i].Ports {
			validatePolicyPort(errs.At("spec.ingress[%d].ports[%d]", i, j), &s.Ingress[i].Ports[j])
		}
		for j := range s.Ingress[i].From {
			validatePeer(errs.At("spec.ingress[%d].from[%d]", i, j), &s.Ingress[i].From[j], k)
		}
	}
	for i := range s.Egress {
		for j := range s.Egress[i].Ports {
			validatePolicyPort(errs.At("spec.egress[%d].ports[%d]", i, j), &s.Egress[i].Ports[j])
		}
		for j := range s.Egress[i].To {
			validatePeer(errs.At("spec.egress[%d].to[%d]", i, j), &s.Egress[i].To[j], k)
		}
	}
	if len(s.PolicyTypes) > 2 {
		errs.Invalid("spec.policyTypes", s.PolicyTypes, "may not specify more than two policyTypes")
		return
	}
	for i, direction := range s.PolicyTypes {
		check.OneOf(errs.At("spec.policyTypes[%d]", i), "", direction, networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress)
	}
}

func validatePolicyPort(errs *resource.Errors, p *networkingv1.NetworkPolicyPort) {
	if p.Protocol != nil {
		check.OneOf(errs, "protocol", *p.Protocol, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)
	}
	switch {
	case p.Port == nil:
		if p.EndPort != nil {
			errs.Invalid("endPort", *p.EndPort, "may not be specified when `port` is not specified")
		}
	case p.Port.Type == intstr.String:
		if p.EndPort != nil {
			errs.Invalid("endPort", *p.EndPort, "may not be specified when `port` is non-numeric")
		}
		check.PortOrName(errs, "port", *p.Port)
	default:
		check.Port(errs, "port", p.Port.IntVal)
		if p.EndPort == nil {
			return
		}
		if *p.EndPort < p.Port.IntVal {
			errs.Invalid("endPort", *p.EndPort, "must be greater than or equal to `port`")
		}
		check.Port(errs, "endPort", *p.EndPort)
	}
}

func validatePeer(errs *resource.Errors, p *networkingv1.NetworkPolicyPeer, k kept) {
	if p.PodSelector != nil {
		errs.Add(metavalidation.ValidateLabelSelector(p.PodSelector, k.selectors, errs.Path("podSelector"))...)
	}
	if p.NamespaceSelector != nil {
		errs.Add(metavalidation.ValidateLabelSelector(p.NamespaceSelector, k.selectors, errs.Path("namespaceSelector"))...)
	}
	selects := p.PodSelector != nil || p.NamespaceSelector != nil
	switch {
	case p.IPBlock != nil:
		validateBlock(errs.At("ipBlock"), p.IPBlock, k.ranges)
		if selects {
			errs.Forbidden("", "may not specify both ipBlock and another peer")
		}
	case !selects:
		errs.Required("", "must specify a peer")
	}
}

func validateBlock(errs *resource.Errors, b *networkingv1.IPBlock, before []string) {
	if b.CIDR == "" {
		errs.Required("cidr", "")
		return
	}
	check.CIDR(errs, "cidr", b.CIDR, before...)
	_, whole, err := netutils.ParseCIDRSloppy(b.CIDR)
	if err != nil {
		return
	}
	bits, _ := whole.Mask.Size()
	for i, text := range b.Except {
		at := errs.At("except[%d]", i)
		check.CIDR(at, "", text, before...)
		_, part, err := netutils.ParseCIDRSloppy(text)
		if err != nil {
			continue
		}
		if partBits, _ := part.Mask.Size(); !whole.Contains(part.IP) || bits >= partBits {
			at.Invalid("", text, "must be a strict subset of `cidr`")
		}
	}
}

// warnNetworkPolicy tells of ranges that are written in a form of which people and
// programs make different things.
func warnNetworkPolicy(p, _ *networkingv1.NetworkPolicy) []string {
	var w check.Warnings
	eachBlock(p, func(at *resource.Errors, b *networkingv1.IPBlock) {
		w.CIDR(at.Path("cidr").String(), b.CIDR)
		for i, except := range b.Except {
			w.CIDR(at.At("except[%d]", i).Path("").String(), except)
		}
	})
	return w
}
