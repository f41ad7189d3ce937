package networking

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	networkingv1beta1 "k8s.io/api/networking/v1beta1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	netutils "k8s.io/utils/net"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/core/check"
	"github.com/kemudi/kemudi/internal/resource"
)

// IPAddresses are addresses of Services that are taken, and by which object. Each is
// named after its address.
var IPAddresses = resource.Define(resource.Spec[*networkingv1.IPAddress]{
	Names: resource.Names{
		Group: "networking.k8s.io", Version: "v1", Kind: "IPAddress", Plural: "ipaddresses", Short: []string{"ip"}, NameRule: addressName,
	},
	Validate: validateIPAddress,
	Unique: resource.Unique[*networkingv1.IPAddress]{Taking: &resource.Taking[*networkingv1.IPAddress]{
		Class: core.ClassClusterIP, New: NewIPAddress, Made: AllocatedIPAddress,
		Holder: func(a *networkingv1.IPAddress) resource.Holder {
			return resource.Holder(ptr.Deref(a.Spec.ParentRef, networkingv1.ParentReference{}))
		},
	}},
	Columns: []resource.Column[*networkingv1.IPAddress]{{
		Name: "ParentRef", Description: networkingv1.IPAddressSpec{}.SwaggerDoc()["parentRef"],
		Value: func(a *networkingv1.IPAddress) any { return parentText(a.Spec.ParentRef) },
	}},
	Ageless: true,
	Versions: []resource.Version[*networkingv1.IPAddress]{resource.SameWire[*networkingv1beta1.IPAddress](resource.Version[*networkingv1.IPAddress]{
		Group: "networking.k8s.io", Version: "v1beta1", OffByDefault: true,
		Deprecated: "networking.k8s.io/v1beta1 IPAddress is deprecated in v1.34+, unavailable in v1.37+",
	})},
})

// addressManager is the value of the label of the addresses that are taken with the
// Services that have them.
const addressManager = "ipallocator.k8s.io"

// NewIPAddress takes an address.
func NewIPAddress(address string, holder resource.Holder) *networkingv1.IPAddress {
	return &networkingv1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{Name: address, Labels: map[string]string{
			networkingv1.LabelIPAddressFamily: string(addressFamily(address)), networkingv1.LabelManagedBy: addressManager,
		}},
		Spec: networkingv1.IPAddressSpec{ParentRef: ptr.To(networkingv1.ParentReference(holder))},
	}
}

func addressFamily(address string) corev1.IPFamily {
	if netutils.IsIPv6String(address) {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}

// AllocatedIPAddress reports that an address is taken by the server, with a Service, and not by
// a client.
func AllocatedIPAddress(a *networkingv1.IPAddress) bool {
	return a.Labels[networkingv1.LabelManagedBy] == addressManager
}

// LabelledIPAddress reports that an address has the labels of those that are taken with a
// Service.
func LabelledIPAddress(a *networkingv1.IPAddress) bool {
	return AllocatedIPAddress(a) && a.Labels[networkingv1.LabelIPAddressFamily] == string(addressFamily(a.Name))
}

// addressName accepts an address in the one form that all programs write it in.
func addressName(name string, _ bool) (refusals []string) {
	for _, err := range utilvalidation.IsValidIP(nil, name) {
		refusals = append(refusals, err.Detail)
	}
	return refusals
}

// parentText is "services/default/kubernetes".
func parentText(p *networkingv1.ParentReference) string {
	if p == nil {
		return "<none>"
	}
	words := []string{strings.ToLower(schema.GroupResource{Group: p.Group, Resource: p.Resource}.String())}
	if p.Namespace != "" {
		words = append(words, p.Namespace)
	}
	return strings.Join(append(words, p.Name), "/")
}

func validateIPAddress(a, old *networkingv1.IPAddress, errs *resource.Errors) {
	if p := a.Spec.ParentRef; p == nil {
		errs.Required("spec.parentRef", "")
	} else {
		at := errs.At("spec.parentRef")
		if p.Group != "" { // that of Services is none
			check.DNSSubdomain(at, "group", p.Group)
		}
		segment(at, "resource", p.Resource)
		segment(at, "name", p.Name)
		if p.Namespace != "" {
			segment(at, "namespace", p.Namespace)
		}
	}
	if old != nil && !equality.Semantic.DeepEqual(a.Spec.ParentRef, old.Spec.ParentRef) {
		errs.Immutable("spec.parentRef", a.Spec.ParentRef)
	}
}
