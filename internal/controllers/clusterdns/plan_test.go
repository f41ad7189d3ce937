package clusterdns

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// serversOf makes servers of their names; one in capitals is lost.
func serversOf(names string) (list []server) {
	for _, name := range strings.Fields(names) {
		i := int(name[len(name)-1])
		list = append(list, server{
			Node: strings.ToLower(name), Lost: name != strings.ToLower(name),
			Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 244, byte(i), 1}), netip.MustParseAddr(fmt.Sprintf("fd00::%d:1", i))},
		})
	}
	return list
}

// sliceOf makes a slice of its number and the nodes in it.
func sliceOf(n int, nodes string) *discoveryv1.EndpointSlice {
	s := blank(discoveryv1.AddressTypeIPv4, n)
	s.Endpoints = endpoints(serversOf(nodes), discoveryv1.AddressTypeIPv4)
	return s
}

// String lists what is done, slice by slice.
func (c change) String() string {
	var b strings.Builder
	for what, list := range map[string][]*discoveryv1.EndpointSlice{"make": c.make, "put": c.put, "drop": c.drop} {
		for _, s := range list {
			fmt.Fprintf(&b, "%s %s:", what, strings.TrimPrefix(s.Name, "kube-dns-"))
			for _, e := range s.Endpoints {
				if what != "drop" {
					b.WriteString(" " + *e.NodeName)
				}
			}
			b.WriteString("\n")
		}
	}
	lines := strings.SplitAfter(strings.TrimSuffix(b.String(), "\n"), "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	slices.Sort(lines)
	return strings.Join(lines, "; ")
}

func TestEndpointsStayInTheirSlices(t *testing.T) {
	four := []corev1.IPFamily{corev1.IPv4Protocol}
	for _, tc := range []struct {
		name     string
		servers  string
		families []corev1.IPFamily
		has      []*discoveryv1.EndpointSlice
		want     string
	}{
		{"nothing to do", "a b", four, []*discoveryv1.EndpointSlice{sliceOf(0, "a b")}, ""},
		{"the first ones", "b a c d", four, nil, "make ipv4-0: a b c; make ipv4-1: d"},
		{"both families", "a", []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}, nil, "make ipv4-0: a; make ipv6-0: a"},
		{"one comes where there is room", "a b c d e", four, []*discoveryv1.EndpointSlice{sliceOf(0, "a b c"), sliceOf(1, "e")}, "put ipv4-1: e d"},
		{"one comes where there is none", "a b c d", four, []*discoveryv1.EndpointSlice{sliceOf(1, "a b c")}, "make ipv4-0: d"},
		{"one goes", "a c d", four, []*discoveryv1.EndpointSlice{sliceOf(0, "a b c"), sliceOf(1, "d")}, "put ipv4-0: a c"},
		{"the last of a slice goes", "a b c", four, []*discoveryv1.EndpointSlice{sliceOf(0, "a b c"), sliceOf(1, "d")}, "drop ipv4-1:"},
		{"one is lost", "a B", four, []*discoveryv1.EndpointSlice{sliceOf(0, "a b")}, "put ipv4-0: a b"},
		{"much too many slices", "a b c", four, []*discoveryv1.EndpointSlice{sliceOf(0, "a"), sliceOf(1, "b"), sliceOf(2, "c")}, "drop ipv4-1:; drop ipv4-2:; put ipv4-0: a b c"},
		{"a slice from when there was one a node", "n1", four, []*discoveryv1.EndpointSlice{sliceOf(7, "n1")}, ""},
		{"no family any more", "a", nil, []*discoveryv1.EndpointSlice{sliceOf(0, "a")}, "drop ipv4-0:"},
		{"nobody", "", four, []*discoveryv1.EndpointSlice{sliceOf(0, "a")}, "drop ipv4-0:"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := plan(serversOf(tc.servers), tc.families, tc.has, 3).String(); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}
