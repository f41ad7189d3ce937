package core

import (
	"cmp"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/resource"
)

// Classes of values that no two services may have.
const (
	ClassClusterIP = "clusterip"
	ClassNodePort  = "nodeport"
)

// Flags of the server that services depend on, and what they are if unset. The ranges of
// addresses are those of the flag where no object offers any.
const (
	FlagServiceCIDR      = "service-cluster-ip-range" // one range, or two of different families
	FlagNodePorts        = "service-node-port-range"
	DefaultServiceCIDR   = "10.96.0.0/16"
	DefaultNodePortRange = "30000-32767"
)

// commitService takes cluster IPs, node ports and the health check port of a
// service together with its write, and gives back what it has no more. s is nil
// when the service is deleted, old when it is created.
func commitService(tx resource.Tx, s, old *corev1.Service) error {
	if s == nil {
		release(tx, holdings{}, heldBy(old))
		return nil
	}
	a := &allocation{tx: tx, service: s, old: old, errs: resource.NewErrors()}
	if err := errors.Join(a.parseRanges(), a.parsePorts(tx.Setting(FlagNodePorts))); err != nil {
		return apierrors.NewInternalError(err)
	}
	for _, step := range []func() error{a.families, a.clusterIPs, a.nodePorts, a.healthCheckPort} {
		if err := step(); err != nil {
			return apierrors.NewInternalError(err)
		}
		if a.errs.Len() > 0 {
			return apierrors.NewInvalid(schema.GroupKind{Kind: "Service"}, s.Name, a.errs.List())
		}
	}
	if old != nil {
		release(tx, heldBy(s), heldBy(old))
	}
	return nil
}

// holdings are the values that a service holds.
type holdings struct {
	ips   []string
	ports []int32
}

func heldBy(s *corev1.Service) (h holdings) {
	if hasClusterIPs(s) && !Headless(s) {
		h.ips = s.Spec.ClusterIPs
	}
	for _, port := range nodePorts(s.Spec.Ports) {
		if port != 0 && hasNodePorts(s) {
			h.ports = append(h.ports, port)
		}
	}
	if s.Spec.HealthCheckNodePort != 0 {
		h.ports = append(h.ports, s.Spec.HealthCheckNodePort)
	}
	return h
}

// canonical is an address in the form in which it is taken.
func canonical(ip string) string {
	if addr, err := netip.ParseAddr(ip); err == nil {
		return addr.String()
	}
	return ip
}

// release gives back what is in old and not in now.
func release(tx resource.Tx, now, old holdings) {
	for _, ip := range old.ips {
		if !slices.Contains(now.ips, ip) {
			tx.Release(ClassClusterIP, canonical(ip))
		}
	}
	for _, port := range old.ports {
		if !slices.Contains(now.ports, port) {
			tx.Release(ClassNodePort, strconv.Itoa(int(port)))
		}
	}
}

// allocation is the taking of values for one write of one service. Its steps
// return errors of the server and put those of the client into errs.
type allocation struct {
	tx           resource.Tx
	service, old *corev1.Service
	errs         *resource.Errors

	ranges   []netip.Prefix  // in the order in which they are used
	primary  corev1.IPFamily // of services that name none
	min, max int32           // node ports
}

// parseRanges reads which addresses there are. What objects offer counts, if there are such
// objects; the family of the flag's first range is that of services that name none, if there
// are addresses of it.
func (a *allocation) parseRanges() error {
	said, err := parsePrefixes(strings.Split(cmp.Or(a.tx.Setting(FlagServiceCIDR), DefaultServiceCIDR), ","))
	if err != nil {
		return fmt.Errorf("parse --%s: %w", FlagServiceCIDR, err)
	}
	a.ranges, a.primary = said, familyOf(said[0].Addr().String())
	offered, ok := a.tx.Offered(ClassClusterIP)
	if !ok {
		return nil
	}
	if a.ranges, err = parsePrefixes(offered); err != nil {
		return fmt.Errorf("parse a range of cluster IPs: %w", err)
	}
	if len(a.ranges) > 0 && !a.has(a.primary) {
		a.primary = otherFamily(a.primary)
	}
	return nil
}

func parsePrefixes(texts []string) (list []netip.Prefix, _ error) {
	for _, text := range texts {
		prefix, err := netip.ParsePrefix(strings.TrimSpace(text))
		if err != nil {
			return nil, err
		}
		list = append(list, prefix.Masked())
	}
	return list, nil
}

func (a *allocation) parsePorts(ports string) (err error) {
	a.min, a.max, err = NodePortRange(ports)
	return err
}

// NodePortRange are the first and the last of the node ports, by the value of [FlagNodePorts].
func NodePortRange(ports string) (first, last int32, _ error) {
	lo, hi, _ := strings.Cut(cmp.Or(ports, DefaultNodePortRange), "-")
	from, err := strconv.ParseUint(lo, 10, 16)
	if err != nil {
		return 0, 0, fmt.Errorf("parse --%s: %w", FlagNodePorts, err)
	}
	to, err := strconv.ParseUint(hi, 10, 16)
	if err != nil {
		return 0, 0, fmt.Errorf("parse --%s: %w", FlagNodePorts, err)
	}
	return int32(from), int32(to), nil
}

// rangesOf are the ranges of a family.
func (a *allocation) rangesOf(family corev1.IPFamily) (list []netip.Prefix) {
	for _, r := range a.ranges {
		if r.Addr().Is6() == (family == corev1.IPv6Protocol) {
			list = append(list, r)
		}
	}
	return list
}

// has reports whether the cluster has addresses of a family: of the primary one it is said to
// have some even while all ranges are on their way out.
func (a *allocation) has(family corev1.IPFamily) bool {
	return len(a.ranges) == 0 && family == a.primary || len(a.rangesOf(family)) > 0
}

func otherFamily(f corev1.IPFamily) corev1.IPFamily {
	if f == corev1.IPv4Protocol {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}

// families completes policy and families from what is given and what the
// cluster has.
func (a *allocation) families() error {
	s := &a.service.Spec
	if s.Type == corev1.ServiceTypeExternalName {
		return nil
	}
	if a.keepsPreference() {
		return nil
	}
	a.dropSecondary()
	headless := Headless(a.service)
	if headless && len(s.Selector) == 0 {
		// Its endpoints are made by hand, so they may be of any family.
		if s.IPFamilyPolicy == nil {
			s.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicyRequireDualStack)
		}
	} else if s.IPFamilyPolicy == nil {
		policy := corev1.IPFamilyPolicySingleStack
		if len(s.ClusterIPs) == 2 || len(s.IPFamilies) == 2 {
			policy = corev1.IPFamilyPolicyRequireDualStack
		}
		s.IPFamilyPolicy = &policy
	}
	single := *s.IPFamilyPolicy == corev1.IPFamilyPolicySingleStack
	if single && len(s.ClusterIPs) == 2 {
		a.errs.Invalid("spec.ipFamilyPolicy", *s.IPFamilyPolicy, "must be RequireDualStack or PreferDualStack when multiple 'clusterIPs' are specified")
	}
	if single && len(s.IPFamilies) == 2 {
		a.errs.Invalid("spec.ipFamilyPolicy", *s.IPFamilyPolicy, "must be RequireDualStack or PreferDualStack when multiple 'ipFamilies' are specified")
	}
	if !headless {
		for i := len(s.IPFamilies); i < len(s.ClusterIPs); i++ {
			s.IPFamilies = append(s.IPFamilies, familyOf(s.ClusterIPs[i]))
		}
	}
	if len(s.IPFamilies) == 0 {
		s.IPFamilies = []corev1.IPFamily{a.primary}
	}
	if headless && len(s.Selector) == 0 {
		if !single && len(s.IPFamilies) == 1 {
			s.IPFamilies = append(s.IPFamilies, otherFamily(s.IPFamilies[0]))
		}
		return nil
	}
	var had []corev1.IPFamily // which it keeps while their ranges go
	if a.old != nil {
		had = a.old.Spec.IPFamilies
	}
	for i, family := range s.IPFamilies {
		if !a.has(family) && !slices.Contains(had, family) {
			a.errs.At("spec.ipFamilies[%d]", i).Invalid("", family, "not configured on this cluster")
		}
	}
	if dual := a.has(corev1.IPv4Protocol) && a.has(corev1.IPv6Protocol); !single && dual && len(s.IPFamilies) == 1 {
		s.IPFamilies = append(s.IPFamilies, otherFamily(s.IPFamilies[0]))
	} else if *s.IPFamilyPolicy == corev1.IPFamilyPolicyRequireDualStack && !dual && len(had) < 2 {
		a.errs.Invalid("spec.ipFamilyPolicy", *s.IPFamilyPolicy, "this cluster is not configured for dual-stack services")
	}
	return nil
}

// keepsPreference reports whether an update leaves a service that prefers two
// families as it is: it does not gain or lose one because the cluster did.
func (a *allocation) keepsPreference() bool {
	if a.old == nil || !hasClusterIPs(a.old) {
		return false
	}
	n, o := &a.service.Spec, &a.old.Spec
	prefers := func(s *corev1.ServiceSpec) bool {
		return s.IPFamilyPolicy != nil && *s.IPFamilyPolicy == corev1.IPFamilyPolicyPreferDualStack
	}
	return prefers(n) && prefers(o) && slices.Equal(n.ClusterIPs, o.ClusterIPs) && slices.Equal(n.IPFamilies, o.IPFamilies)
}

// dropSecondary takes the second family from a service that is told to have one
// only, without being told which.
func (a *allocation) dropSecondary() {
	n := &a.service.Spec
	if a.old == nil || n.IPFamilyPolicy == nil || *n.IPFamilyPolicy != corev1.IPFamilyPolicySingleStack {
		return
	}
	o := &a.old.Spec
	if o.IPFamilyPolicy != nil && *o.IPFamilyPolicy == corev1.IPFamilyPolicySingleStack {
		return
	}
	if len(n.ClusterIPs) == 2 && slices.Equal(n.ClusterIPs, o.ClusterIPs) {
		n.ClusterIPs = n.ClusterIPs[:1:1]
	}
	if len(n.IPFamilies) == 2 && slices.Equal(n.IPFamilies, o.IPFamilies) {
		n.IPFamilies = n.IPFamilies[:1:1]
	}
}

// clusterIPs takes the addresses that are asked for, and any of the families
// that have none yet.
func (a *allocation) clusterIPs() error {
	s := &a.service.Spec
	if s.Type == corev1.ServiceTypeExternalName || Headless(a.service) {
		return nil
	}
	var had []string
	if a.old != nil {
		had = heldBy(a.old).ips
	}
	for _, ip := range s.ClusterIPs {
		if slices.Contains(had, ip) {
			continue
		}
		if err := a.takeIP(ip); err != nil {
			a.errs.Invalid("spec.clusterIPs", s.ClusterIPs, fmt.Sprintf("failed to allocate IP %s: %v", ip, err))
		}
	}
	for i := len(s.ClusterIPs); i < len(s.IPFamilies) && a.errs.Len() == 0; i++ {
		ip, err := a.tx.AllocateAny(ClassClusterIP, freeOf(a.rangesOf(s.IPFamilies[i])))
		if err != nil {
			return fmt.Errorf("failed to allocate a serviceIP: %w", full(err))
		}
		s.ClusterIPs = append(slices.Clone(s.ClusterIPs), ip)
	}
	if len(s.ClusterIPs) > 0 {
		s.ClusterIP = s.ClusterIPs[0]
	}
	return nil
}

func (a *allocation) takeIP(text string) error {
	ip, err := netip.ParseAddr(text)
	if err != nil {
		return fmt.Errorf("parse address: %w", err)
	}
	ranges := a.rangesOf(familyOf(text))
	if !slices.ContainsFunc(ranges, func(p netip.Prefix) bool {
		return p.Contains(ip) && ip != p.Addr() && (ip.Is6() || ip != lastAddress(p))
	}) {
		a.tx.Outside(ClassClusterIP, ip.String())
		return fmt.Errorf("the provided IP (%s) is not in the valid range. The range of valid IPs is %s", text, joined(ranges))
	}
	if err := a.tx.Allocate(ClassClusterIP, ip.String()); errors.Is(err, resource.ErrAllocated) {
		return errors.New("provided IP is already allocated")
	} else if err != nil {
		return fmt.Errorf("allocate address: %w", err)
	}
	return nil
}

// joined are ranges as people write them.
func joined(ranges []netip.Prefix) string {
	texts := make([]string, len(ranges))
	for i, p := range ranges {
		texts[i] = p.String()
	}
	return strings.Join(texts, ", ")
}

func full(err error) error {
	if errors.Is(err, resource.ErrExhausted) {
		return errors.New("range is full")
	}
	return err
}

func lastAddress(p netip.Prefix) netip.Addr {
	bytes := p.Addr().AsSlice()
	for bit := p.Bits(); bit < len(bytes)*8; bit++ {
		bytes[bit/8] |= 1 << (7 - bit%8)
	}
	last, _ := netip.AddrFromSlice(bytes)
	return last
}

// probes is how many addresses of each of several ranges are tried before one of them is
// gone through: one that is full costs no more than that.
const probes = 64

// freeOf yields the addresses of several ranges, those of the first ones first.
func freeOf(ranges []netip.Prefix) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for _, p := range ranges[:max(len(ranges)-1, 0)] {
			left, more := probes, true
			freeAddresses(p)(func(ip string) bool {
				more = yield(ip)
				left--
				return more && left > 0
			})
			if !more {
				return
			}
		}
		for _, p := range slices.Backward(ranges) {
			more := true
			freeAddresses(p)(func(ip string) bool {
				more = yield(ip)
				return more
			})
			if !more {
				return
			}
		}
	}
}

// freeAddresses yields the addresses of a range in the order in which services
// get them: from a random one on through the upper part, then the lower part,
// which is for addresses that people ask for (KEP-3070).
func freeAddresses(p netip.Prefix) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		bits := p.Addr().BitLen() - p.Bits()
		n := int64(1) << min(bits, 62)
		count := n - 1 // not the first, which names the range
		if p.Addr().Is4() {
			count-- // nor the last, which means all of them
		}
		if count <= 0 {
			return
		}
		first := new(big.Int).SetBytes(p.Addr().AsSlice())
		at := func(i int64) string {
			bytes := make([]byte, p.Addr().BitLen()/8)
			new(big.Int).Add(first, big.NewInt(i+1)).FillBytes(bytes)
			ip, _ := netip.AddrFromSlice(bytes)
			return ip.String()
		}
		inBandOrder(count, staticAddresses(n), func(i int64) bool { return yield(at(i)) })
	}
}

// staticAddresses is how many of n addresses are not given away without need.
func staticAddresses(n int64) int64 {
	if n <= 16 {
		return 0
	}
	return min(max(16, n/16), 256)
}

// inBandOrder yields the numbers below count: first the upper band, from static on,
// beginning at a random number of it, then the numbers below static.
func inBandOrder(count, static int64, yield func(i int64) bool) {
	if dynamic := count - static; dynamic > 0 {
		start := rand.Int64N(dynamic)
		for i := range dynamic {
			if !yield(static + (start+i)%dynamic) {
				return
			}
		}
	}
	for i := range min(static, count) {
		if !yield(i) {
			return
		}
	}
}

// nodePorts takes the ports that are asked for, and any for the others if the
// service wants them. Ports of the same number share one over all protocols.
func (a *allocation) nodePorts() error {
	s := &a.service.Spec
	if !hasNodePorts(a.service) {
		return nil
	}
	var had []int32
	if a.old != nil {
		had = heldBy(a.old).ports
	}
	wanted := getsNodePorts(a.service)
	if !slices.ContainsFunc(s.Ports, func(p corev1.ServicePort) bool { return p.NodePort != 0 || wanted }) {
		return nil
	}
	s.Ports = slices.Clone(s.Ports)
	byPort := map[int32]int32{} // node port by port
	for i := range s.Ports {
		port := &s.Ports[i]
		if port.NodePort == 0 {
			continue
		}
		if _, ok := byPort[port.Port]; !ok {
			byPort[port.Port] = port.NodePort
		}
		if slices.Contains(had, port.NodePort) {
			continue
		}
		if err := a.takePort(port.NodePort); err != nil {
			a.errs.At("spec.ports[%d]", i).Invalid("nodePort", port.NodePort, err.Error())
		}
	}
	for i := range s.Ports {
		port := &s.Ports[i]
		if port.NodePort != 0 || !wanted || a.errs.Len() > 0 {
			continue
		}
		if shared := byPort[port.Port]; shared != 0 {
			port.NodePort = shared
			continue
		}
		nodePort, err := a.anyPort()
		if err != nil {
			return fmt.Errorf("failed to allocate a nodePort: %w", err)
		}
		port.NodePort, byPort[port.Port] = nodePort, nodePort
	}
	return nil
}

func (a *allocation) takePort(port int32) error {
	if port < a.min || port > a.max {
		a.tx.Outside(ClassNodePort, strconv.Itoa(int(port)))
		return fmt.Errorf("provided port is not in the valid range. The range of valid ports is %d-%d", a.min, a.max)
	}
	if err := a.tx.Allocate(ClassNodePort, strconv.Itoa(int(port))); errors.Is(err, resource.ErrAllocated) {
		return errors.New("provided port is already allocated")
	} else if err != nil {
		return fmt.Errorf("allocate port: %w", err)
	}
	return nil
}

// anyPort takes a free port: of the upper part first (KEP-3668).
func (a *allocation) anyPort() (int32, error) {
	text, err := a.tx.AllocateAny(ClassNodePort, func(yield func(string) bool) {
		count := int64(a.max-a.min) + 1
		inBandOrder(count, staticPorts(count), func(i int64) bool { return yield(strconv.FormatInt(int64(a.min)+i, 10)) })
	})
	if err != nil {
		return 0, full(err)
	}
	port, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("parse allocated port: %w", err)
	}
	return int32(port), nil
}

// staticPorts is how many of n node ports are not given away without need.
func staticPorts(n int64) int64 {
	static := min(max(16, n/32), 128)
	if static >= n {
		return 0
	}
	return static
}

// healthCheckPort takes the port on which nodes say whether they have endpoints.
func (a *allocation) healthCheckPort() error {
	s := &a.service.Spec
	if !NeedsHealthCheckPort(a.service) {
		return nil
	}
	if a.old != nil && NeedsHealthCheckPort(a.old) && a.old.Spec.HealthCheckNodePort == s.HealthCheckNodePort && s.HealthCheckNodePort != 0 {
		return nil
	}
	if s.HealthCheckNodePort != 0 {
		if err := a.takePort(s.HealthCheckNodePort); err != nil {
			return fmt.Errorf("failed to allocate requested HealthCheck NodePort %v: %w", s.HealthCheckNodePort, err)
		}
		return nil
	}
	port, err := a.anyPort()
	if err != nil {
		return fmt.Errorf("failed to allocate a HealthCheck NodePort %v: %w", s.HealthCheckNodePort, err)
	}
	s.HealthCheckNodePort = port
	return nil
}
