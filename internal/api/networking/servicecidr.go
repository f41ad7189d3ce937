package networking

import (
	"net/netip"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	networkingv1beta1 "k8s.io/api/networking/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	netutils "k8s.io/utils/net"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/resource"
)

// ServiceCIDRs are ranges of which Services get their addresses.
var ServiceCIDRs = resource.Define(resource.Spec[*networkingv1.ServiceCIDR]{
	Names: resource.Names{Group: "networking.k8s.io", Version: "v1", Kind: "ServiceCIDR", Plural: "servicecidrs"},
	Prepare: func(obj, old *networkingv1.ServiceCIDR) {
		if old == nil {
			obj.Status = networkingv1.ServiceCIDRStatus{}
			return
		}
		obj.Status = old.Status
	},
	Validate: validateServiceCIDR,
	Unique: resource.Unique[*networkingv1.ServiceCIDR]{Offer: &resource.Offer[*networkingv1.ServiceCIDR]{
		Class: core.ClassClusterIP,
		Values: func(c *networkingv1.ServiceCIDR) []string {
			if !ServiceCIDRReady(c) {
				return nil
			}
			return c.Spec.CIDRs
		},
	}},
	Columns: []resource.Column[*networkingv1.ServiceCIDR]{{
		Name: "CIDRs", Description: networkingv1.ServiceCIDRSpec{}.SwaggerDoc()["cidrs"],
		Value: func(c *networkingv1.ServiceCIDR) any { return strings.Join(c.Spec.CIDRs, ",") },
	}},
	Sub: []resource.Sub[*networkingv1.ServiceCIDR]{{
		Name: "status", Keeps: resource.KeepsMetadata,
		Merge:    func(obj, old *networkingv1.ServiceCIDR) { obj.Spec = old.Spec },
		Validate: func(_, _ *networkingv1.ServiceCIDR, _ *resource.Errors) {},
	}},
	Versions: []resource.Version[*networkingv1.ServiceCIDR]{resource.SameWire[*networkingv1beta1.ServiceCIDR](resource.Version[*networkingv1.ServiceCIDR]{
		Group: "networking.k8s.io", Version: "v1beta1", OffByDefault: true,
		Deprecated: "networking.k8s.io/v1beta1 ServiceCIDR is deprecated in v1.34+, unavailable in v1.37+",
	})},
})

// DefaultServiceCIDR is the name of the ranges that a cluster begins with, which are those of
// the servers' flags.
const DefaultServiceCIDR = "kubernetes"

// NewDefaultServiceCIDR is the ServiceCIDR of that name. Who makes it says then that it is ready, as the
// servers give out its addresses before anybody else can look at it.
func NewDefaultServiceCIDR(ranges []netip.Prefix) *networkingv1.ServiceCIDR {
	c := &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: DefaultServiceCIDR, Finalizers: []string{ServiceCIDRFinalizer}}}
	for _, r := range ranges {
		c.Spec.CIDRs = append(c.Spec.CIDRs, r.Masked().String())
	}
	return c
}

// ServiceCIDRFinalizer keeps ranges while addresses of theirs are in use.
const ServiceCIDRFinalizer = "networking.k8s.io/service-cidr-finalizer"

// ReadyServiceCIDR is the condition of ranges of which Services get addresses.
func ReadyServiceCIDR(c *networkingv1.ServiceCIDR) metav1.Condition {
	ready := metav1.Condition{Type: networkingv1.ServiceCIDRConditionReady, Status: metav1.ConditionTrue, Message: "Kubernetes Service CIDR is ready"}
	if c.Name == DefaultServiceCIDR {
		ready.Message = "Kubernetes default Service CIDR is ready"
	}
	return ready
}

// ServiceCIDRReady reports whether Services get addresses of the ranges. Those that nobody has
// looked at yet are ready.
func ServiceCIDRReady(c *networkingv1.ServiceCIDR) bool {
	return c.DeletionTimestamp == nil && !meta.IsStatusConditionFalse(c.Status.Conditions, networkingv1.ServiceCIDRConditionReady)
}

// ServiceRanges are the ranges of a ServiceCIDR.
func ServiceRanges(c *networkingv1.ServiceCIDR) (list []netip.Prefix) {
	for _, text := range c.Spec.CIDRs {
		if p, err := netip.ParsePrefix(text); err == nil {
			list = append(list, p.Masked())
		}
	}
	return list
}

// validateServiceCIDR checks the ranges: one, or one of each family. A second one may
// come to the first, all else is fixed.
func validateServiceCIDR(c, old *networkingv1.ServiceCIDR, errs *resource.Errors) {
	is := c.Spec.CIDRs
	switch {
	case old == nil:
		validateRanges(&c.Spec, errs)
	case len(is) == len(old.Spec.CIDRs):
		for i := range is {
			if is[i] != old.Spec.CIDRs[i] {
				errs.At("spec.cidrs[%d]", i).Immutable("", is[i])
			}
		}
	case len(old.Spec.CIDRs) == 1 && len(is) == 2:
		if is[0] != old.Spec.CIDRs[0] {
			errs.Immutable("spec.cidrs[0]", is[0])
		}
		validateRanges(&c.Spec, errs)
	default:
		errs.Immutable("spec.cidrs", is)
	}
}

func validateRanges(s *networkingv1.ServiceCIDRSpec, errs *resource.Errors) {
	switch {
	case len(s.CIDRs) == 0:
		errs.Required("spec.cidrs", "at least one CIDR required")
		return
	case len(s.CIDRs) > 2:
		errs.Invalid("spec.cidrs", s, "may only hold up to 2 values")
		return
	}
	for i, cidr := range s.CIDRs {
		errs.Add(utilvalidation.IsValidCIDR(errs.At("spec.cidrs[%d]", i).Path(""), cidr)...)
	}
	if len(s.CIDRs) == 1 {
		return
	}
	if first := netutils.IPFamilyOfCIDRString(s.CIDRs[0]); first != netutils.IPFamilyUnknown && first == netutils.IPFamilyOfCIDRString(s.CIDRs[1]) {
		errs.Invalid("spec.cidrs", s.CIDRs, "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64")
	}
}
