package loadbalancer

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cache"
)

// What people say of a Service's balancer by annotations.
const (
	// AnnotationPool names the pool that addresses are to be of.
	AnnotationPool = "kemudi.io/load-balancer-pool"
	// AnnotationAddresses are the addresses that a Service is to have: one, or one of each family
	// with a comma between. spec.loadBalancerIP says the same of one, and is deprecated.
	AnnotationAddresses = "kemudi.io/load-balancer-addresses"
	// AnnotationSharing is a word that Services have in common which may share an address of a pool.
	AnnotationSharing = "kemudi.io/load-balancer-sharing"
)

// An ask is what a Service wants.
type ask struct {
	key      string
	families []corev1.IPFamily
	both     bool // of them are needed
	ports    []port
	pool     string       // empty: the first
	addrs    []netip.Addr // that it is to have
	internal bool         // it is to be reached from within alone
	sharing  string       // empty: it shares with nobody
	local    bool         // only nodes with endpoints serve it
	edges    bool         // only nodes with an edge do
	backends string       // what selects these, for others to be compared with
}

// port is one of an address.
type port struct {
	proto  corev1.Protocol
	number int32
}

func (p port) String() string { return fmt.Sprintf("%d/%s", p.number, p.proto) }

// A problem is why a Service gets no address.
type problem struct {
	reason  string // of the condition
	message string
}

func problemf(reason, format string, args ...any) *problem {
	return &problem{reason, fmt.Sprintf(format, args...)}
}

// askOf reads a Service. What it says of addresses and cannot be is a problem.
func askOf(svc *corev1.Service) (ask, *problem) {
	s := &svc.Spec
	a := ask{
		key: cache.Key(svc.Namespace, svc.Name), families: s.IPFamilies, both: ptr.Deref(s.IPFamilyPolicy, "") == corev1.IPFamilyPolicyRequireDualStack,
		pool: svc.Annotations[AnnotationPool], sharing: svc.Annotations[AnnotationSharing],
		internal: wantsInternal(svc), local: s.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal,
	}
	if len(a.families) == 0 {
		a.families = []corev1.IPFamily{corev1.IPv4Protocol}
	}
	for i := range s.Ports {
		a.ports = append(a.ports, port{s.Ports[i].Protocol, s.Ports[i].Port})
	}
	if len(s.Selector) > 0 {
		a.backends = svc.Namespace + " " + labels.Set(s.Selector).String()
	}
	relay, err := core.RelayOf(svc)
	if err != nil {
		return a, problemf("Unsupported", "%v", err)
	}
	a.edges = relay != nil
	wanted, from := svc.Annotations[AnnotationAddresses], AnnotationAddresses
	if wanted == "" {
		wanted, from = s.LoadBalancerIP, "spec.loadBalancerIP"
	}
	for text := range strings.SplitSeq(wanted, ",") {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		addr, err := netip.ParseAddr(text)
		if err != nil {
			return a, problemf("InvalidAddress", "%s: %q is no address", from, text)
		}
		if !slices.Contains(a.families, familyOf(addr)) {
			return a, problemf("InvalidAddress", "%s: %s is not of the Service's spec.ipFamilies", from, addr)
		}
		a.addrs = append(a.addrs, addr)
	}
	return a, nil
}

func familyOf(a netip.Addr) corev1.IPFamily {
	if a.Is4() {
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
}

// overlap is a port that two Services want.
func overlap(a, b []port) (port, bool) {
	for _, p := range a {
		if slices.Contains(b, p) {
			return p, true
		}
	}
	return port{}, false
}
