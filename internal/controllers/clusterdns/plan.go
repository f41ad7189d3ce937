package clusterdns

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// change is what is to be done to the slices. Those to make and to put are new objects.
type change struct{ make, put, drop []*discoveryv1.EndpointSlice }

// follow gives the service an address of each family that there is, and takes that of the second
// one away when there is none of it any more. What it has is not changed.
func follow(svc *corev1.Service, families []corev1.IPFamily) *corev1.Service {
	has := svc.Spec.IPFamilies
	var policy corev1.IPFamilyPolicy
	switch {
	case len(has) == 1 && len(families) == 2:
		policy = corev1.IPFamilyPolicyPreferDualStack
	case len(has) == 2 && len(families) == 1 && has[0] == families[0]:
		policy = corev1.IPFamilyPolicySingleStack
	default:
		return svc
	}
	svc = svc.DeepCopy()
	if policy == corev1.IPFamilyPolicyPreferDualStack {
		for _, f := range families {
			if f != has[0] {
				svc.Spec.IPFamilies = append(svc.Spec.IPFamilies, f)
			}
		}
	}
	svc.Spec.IPFamilyPolicy = &policy
	return svc
}

// withMetrics gives a service that was made before metrics had a port the ports of today.
func withMetrics(svc *corev1.Service) *corev1.Service {
	if !equality.Semantic.DeepEqual(svc.Spec.Ports, servicePorts[:len(servicePorts)-1]) {
		return svc
	}
	svc = svc.DeepCopy()
	svc.Spec.Ports = slices.Clone(servicePorts)
	return svc
}

// plan makes the slices hold the servers' addresses in each of the service's families, at
// most so many in one. An endpoint stays in the slice that it is in, so that a node that
// comes or goes changes one slice, unless half as many would do.
func plan(servers []server, families []corev1.IPFamily, has []*discoveryv1.EndpointSlice, most int) (c change) {
	slices.SortFunc(servers, func(a, b server) int { return strings.Compare(a.Node, b.Node) })
	slices.SortFunc(has, func(a, b *discoveryv1.EndpointSlice) int { return strings.Compare(a.Name, b.Name) })
	for _, family := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
		var want []discoveryv1.Endpoint
		if slices.Contains(families, corev1.IPFamily(family)) {
			want = endpoints(servers, family)
		}
		var old []*discoveryv1.EndpointSlice
		for _, s := range has {
			if s.AddressType == family {
				old = append(old, s)
			}
		}
		c.pack(family, want, old, most)
	}
	return c
}

// endpoints are the addresses of a family, in the order of the servers' names.
func endpoints(servers []server, family discoveryv1.AddressType) (list []discoveryv1.Endpoint) {
	for _, s := range servers {
		for _, a := range s.Addresses {
			if a.Is4() != (family == discoveryv1.AddressTypeIPv4) {
				continue
			}
			list = append(list, discoveryv1.Endpoint{
				Addresses: []string{a.String()}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(!s.Lost)}, NodeName: ptr.To(s.Node),
				Hints: &discoveryv1.EndpointHints{ForNodes: []discoveryv1.ForNode{{Name: s.Node}}},
			})
		}
	}
	return list
}

// pack puts the endpoints of a family into slices.
func (c *change) pack(family discoveryv1.AddressType, want []discoveryv1.Endpoint, old []*discoveryv1.EndpointSlice, most int) {
	needed := (len(want) + most - 1) / most
	left := map[string]discoveryv1.Endpoint{} // by node: those without a place
	for _, e := range want {
		left[*e.NodeName] = e
	}
	in := make([][]discoveryv1.Endpoint, len(old))
	if len(old) <= max(2*needed, 1) {
		for i, s := range old {
			in[i] = stay(s, left, most)
		}
	}
	rest := slices.DeleteFunc(want, func(e discoveryv1.Endpoint) bool { return left[*e.NodeName].NodeName == nil })
	for i := range in { // those that are left go where there is room
		n := min(most-len(in[i]), len(rest))
		in[i], rest = append(in[i], rest[:n]...), rest[n:]
	}
	for i, s := range old {
		switch {
		case len(in[i]) == 0:
			c.drop = append(c.drop, s)
		case !equality.Semantic.DeepEqual(s.Endpoints, in[i]) || !equality.Semantic.DeepEqual(s.Ports, ports):
			s = s.DeepCopy()
			s.Endpoints, s.Ports = in[i], ports
			c.put = append(c.put, s)
		}
	}
	for n := 0; len(rest) > 0; n++ {
		s := blank(family, n)
		if slices.ContainsFunc(old, func(o *discoveryv1.EndpointSlice) bool { return o.Name == s.Name }) {
			continue
		}
		some := min(most, len(rest))
		s.Endpoints, rest = rest[:some:some], rest[some:]
		c.make = append(c.make, s)
	}
}

// stay returns the endpoints of a slice that are still wanted, as they are now, and takes
// them from those that are left.
func stay(s *discoveryv1.EndpointSlice, left map[string]discoveryv1.Endpoint, most int) (in []discoveryv1.Endpoint) {
	for _, e := range s.Endpoints {
		if e.NodeName == nil || len(in) == most {
			continue
		}
		if now, ok := left[*e.NodeName]; ok {
			in = append(in, now)
			delete(left, *e.NodeName)
		}
	}
	return in
}

var ports = []discoveryv1.EndpointPort{
	{Name: ptr.To("dns"), Port: ptr.To[int32](port), Protocol: ptr.To(corev1.ProtocolUDP)},
	{Name: ptr.To("dns-tcp"), Port: ptr.To[int32](port), Protocol: ptr.To(corev1.ProtocolTCP)},
	{Name: ptr.To("metrics"), Port: ptr.To[int32](metricsPort), Protocol: ptr.To(corev1.ProtocolTCP)},
}

// blank is the n-th slice of a family, without endpoints.
func blank(family discoveryv1.AddressType, n int) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: fmt.Sprintf("%s-%s-%d", name, strings.ToLower(string(family)), n),
			Labels: map[string]string{discoveryv1.LabelServiceName: name, discoveryv1.LabelManagedBy: managedBy},
		},
		AddressType: family, Ports: ports,
	}
}
