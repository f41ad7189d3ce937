package netpolicy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	netutils "k8s.io/utils/net"
	"k8s.io/utils/ptr"
)

// direction is that of connections, seen from the pod that a policy selects.
type direction uint8

const (
	ingress direction = iota
	egress
)

var directions = [...]direction{ingress, egress}

// short is how chains and sets of a direction are called.
func (d direction) short() string {
	if d == egress {
		return "out"
	}
	return "in"
}

// policy is a NetworkPolicy as it was read.
type policy struct {
	selects  labels.Selector
	isolates [len(directions)]bool
	rules    [len(directions)][]rule
}

// rule lets through connections with one of its peers to one of its ports.
type rule struct {
	anybody    bool // all peers; the two lists are empty then
	selections []*peers
	blocks     *peers // nil: none
	ports      ports

	byPod   bool     // what it lets through depends on the ports of the pod that it is for
	clauses []clause // what it lets through else
}

// selection selects pods, in a namespace or in all those that a selector matches.
type selection struct {
	namespace  string
	namespaces labels.Selector // nil: namespace says it
	pods       labels.Selector
}

// everyPod selects all pods of all namespaces.
func everyPod() selection {
	return selection{namespaces: labels.Everything(), pods: labels.Everything()}
}

func (s *selection) String() string {
	where := "namespace " + s.namespace
	if s.namespaces != nil {
		where = "namespaces " + selectorText(s.namespaces)
	}
	return "pods " + selectorText(s.pods) + " of " + where
}

func selectorText(s labels.Selector) string {
	if text := s.String(); text != "" {
		return text
	}
	return "*"
}

// block is a range of addresses with parts left out.
type block struct {
	cidr   netip.Prefix
	except []netip.Prefix
}

func (b block) String() string {
	if len(b.except) == 0 {
		return b.cidr.String()
	}
	words := make([]string, len(b.except))
	for i, e := range b.except {
		words[i] = e.String()
	}
	return b.cidr.String() + " without " + strings.Join(words, " ")
}

// ports are those that a rule names; all says that it names none.
type ports struct {
	all    bool
	ranges []portRange
	names  []portName
}

// portRange is some ports of a protocol in a row, its last one included.
type portRange struct {
	proto       proto
	first, last uint16
}

// whole reports whether these are all ports of the protocol.
func (r portRange) whole() bool { return r.first == 0 && r.last == 1<<16-1 }

func (r portRange) String() string {
	switch {
	case r.whole():
		return r.proto.String()
	case r.first == r.last:
		return fmt.Sprintf("%s/%d", r.proto, r.first)
	}
	return fmt.Sprintf("%s/%d-%d", r.proto, r.first, r.last)
}

// portName is a port that each pod has by its own number.
type portName struct {
	proto proto
	name  string
}

// proto is a transport protocol, by its number in the IP header.
type proto uint8

const (
	tcp  proto = 6
	udp  proto = 17
	sctp proto = 132
)

func (p proto) String() string {
	switch p {
	case udp:
		return "udp"
	case sctp:
		return "sctp"
	}
	return "tcp"
}

func protoOf(p corev1.Protocol) proto {
	switch p {
	case corev1.ProtocolUDP:
		return udp
	case corev1.ProtocolSCTP:
		return sctp
	}
	return tcp
}

// readPolicy reads a policy. Defaults have been filled in and the rest has been checked when
// it was stored; what cannot be read all the same selects nothing.
func readPolicy(np *networkingv1.NetworkPolicy) *policy {
	p := &policy{selects: readSelector(&np.Spec.PodSelector)}
	for _, t := range np.Spec.PolicyTypes {
		switch t {
		case networkingv1.PolicyTypeIngress:
			p.isolates[ingress] = true
		case networkingv1.PolicyTypeEgress:
			p.isolates[egress] = true
		}
	}
	for _, r := range np.Spec.Ingress {
		p.rules[ingress] = append(p.rules[ingress], readRule(np.Namespace, r.From, r.Ports))
		p.rules[ingress][len(p.rules[ingress])-1].complete(ingress)
	}
	for _, r := range np.Spec.Egress {
		p.rules[egress] = append(p.rules[egress], readRule(np.Namespace, r.To, r.Ports))
		p.rules[egress][len(p.rules[egress])-1].complete(egress)
	}
	return p
}

func readSelector(s *metav1.LabelSelector) labels.Selector {
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return labels.Nothing()
	}
	return selector
}

func readRule(namespace string, named []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort) rule {
	r := rule{anybody: len(named) == 0, ports: readPorts(ports)}
	var blocks []block
	for i := range named {
		p := &named[i]
		if p.IPBlock != nil {
			if b, ok := readBlock(p.IPBlock); ok {
				blocks = append(blocks, b)
			}
			continue
		}
		s := selection{namespace: namespace, pods: labels.Everything()}
		if p.NamespaceSelector != nil {
			s.namespace, s.namespaces = "", readSelector(p.NamespaceSelector)
		}
		if p.PodSelector != nil {
			s.pods = readSelector(p.PodSelector)
		}
		r.selections = append(r.selections, described(peers{pods: &s}))
	}
	if len(blocks) > 0 {
		r.blocks = described(peers{blocks: blocks})
	}
	return r
}

func readBlock(b *networkingv1.IPBlock) (block, bool) {
	cidr, ok := readPrefix(b.CIDR)
	out := block{cidr: cidr}
	for _, text := range b.Except {
		if e, ok := readPrefix(text); ok {
			out.except = append(out.except, e)
		}
	}
	return out, ok
}

// readPrefix reads a prefix as upstream does, who knows of zeros in front of numbers.
func readPrefix(text string) (netip.Prefix, bool) {
	_, n, err := netutils.ParseCIDRSloppy(text)
	if err != nil {
		return netip.Prefix{}, false
	}
	a, ok := netip.AddrFromSlice(n.IP)
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(a, bits), ok
}

func readPorts(list []networkingv1.NetworkPolicyPort) ports {
	p := ports{all: len(list) == 0}
	for i := range list {
		l := &list[i]
		proto := protoOf(ptr.Deref(l.Protocol, corev1.ProtocolTCP))
		switch {
		case l.Port == nil:
			p.ranges = append(p.ranges, portRange{proto, 0, 1<<16 - 1})
		case l.Port.Type == intstr.String:
			p.names = append(p.names, portName{proto, l.Port.StrVal})
		default:
			p.ranges = append(p.ranges, portRange{proto, uint16(l.Port.IntVal), uint16(ptr.Deref(l.EndPort, l.Port.IntVal))})
		}
	}
	return p
}

// span is addresses in a row, the last one included.
type span struct{ first, last netip.Addr }

// spans are the addresses of a family that are in one of the blocks, in order and without
// two that overlap or touch.
func spans(blocks []block, is4 bool) []span {
	var all []span
	for _, b := range blocks {
		if b.cidr.Addr().Is4() == is4 {
			all = append(all, without(b)...)
		}
	}
	return merged(all)
}

func spanOf(p netip.Prefix) span {
	last := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < len(last)*8; i++ {
		last[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(last)
	return span{p.Masked().Addr(), a}
}

// without is a block without the parts that are left out.
func without(b block) []span {
	var holes []span
	for _, e := range b.except {
		if e.Addr().Is4() == b.cidr.Addr().Is4() {
			holes = append(holes, spanOf(e))
		}
	}
	whole := spanOf(b.cidr)
	var out []span
	at := whole.first
	for _, h := range merged(holes) {
		if h.last.Less(at) || whole.last.Less(h.first) {
			continue
		}
		if at.Less(h.first) {
			out = append(out, span{at, h.first.Prev()})
		}
		if !h.last.Less(whole.last) {
			return out
		}
		at = h.last.Next()
	}
	return append(out, span{at, whole.last})
}

func merged(all []span) []span {
	slices.SortFunc(all, func(a, b span) int { return a.first.Compare(b.first) })
	var out []span
	for _, s := range all {
		if n := len(out); n > 0 && (!out[n-1].last.Less(s.first) || out[n-1].last.Next() == s.first) {
			if out[n-1].last.Less(s.last) {
				out[n-1].last = s.last
			}
			continue
		}
		out = append(out, s)
	}
	return out
}
