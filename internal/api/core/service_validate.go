package core

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	netutils "k8s.io/utils/net"

	"github.com/kemudi/kemudi/internal/api/core/check"
	"github.com/kemudi/kemudi/internal/resource"
)

func validateService(s, old *corev1.Service, errs *resource.Errors) {
	if old != nil {
		validateServiceChange(s, old, errs.At("spec"))
	} else {
		old = &corev1.Service{}
	}
	at := errs.At("spec")
	validateTopologyAnnotations(errs.At("metadata"), s)
	validateTopologyKeys(errs, s)
	if len(s.Spec.Ports) == 0 && !Headless(s) && s.Spec.Type != corev1.ServiceTypeExternalName {
		at.Required("ports", "")
	}
	validateServiceType(at, s)
	validateServicePorts(at, s)
	check.Labels(at, "selector", s.Spec.Selector)
	validateSessionAffinity(at, &s.Spec)
	validateClusterIPs(at, s, old)
	for i, ip := range s.Spec.ExternalIPs {
		before := errs.Len()
		check.IP(at.At("externalIPs[%d]", i), "", ip, old.Spec.ExternalIPs...)
		if errs.Len() == before {
			CheckNonSpecialIP(at.At("externalIPs[%d]", i), "", ip)
		}
	}
	validateLoadBalancer(errs, s, old)
	validateTrafficPolicies(at, s)
}

func validateTopologyAnnotations(errs *resource.Errors, s *corev1.Service) {
	mode, hasMode := s.Annotations[corev1.AnnotationTopologyMode]
	hints, hasHints := s.Annotations[corev1.DeprecatedAnnotationTopologyAwareHints]
	if hasMode && hasHints && mode != hints {
		errs.At("annotations[%s]", corev1.AnnotationTopologyMode).
			Invalid("", mode, fmt.Sprintf("must match annotations[%s] when both are specified", corev1.DeprecatedAnnotationTopologyAwareHints))
	}
}

// kubeletPort is where node agents listen.
const kubeletPort = 10250

// validateServiceType checks what goes with one type only.
func validateServiceType(errs *resource.Errors, s *corev1.Service) {
	check.RequiredOneOf(errs, "type", s.Spec.Type, corev1.ServiceTypeClusterIP, corev1.ServiceTypeExternalName,
		corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort)
	switch s.Spec.Type {
	case corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort:
		for i := range s.Spec.Ports {
			// Some clouds open a balancer's port on the nodes themselves.
			if port := s.Spec.Ports[i].Port; port == kubeletPort && s.Spec.Type == corev1.ServiceTypeLoadBalancer {
				errs.At("ports[%d]", i).Invalid("", port, "may not expose port 10250 externally since it is used by kubelet")
			}
		}
		if Headless(s) {
			errs.Invalid("clusterIPs[0]", corev1.ClusterIPNone, fmt.Sprintf("may not be set to 'None' for %s services", s.Spec.Type))
		}
	case corev1.ServiceTypeClusterIP:
		for i := range s.Spec.Ports {
			if s.Spec.Ports[i].NodePort != 0 {
				errs.At("ports[%d]", i).Forbidden("nodePort", "may not be used when `type` is 'ClusterIP'")
			}
		}
	case corev1.ServiceTypeExternalName:
		if len(s.Spec.ClusterIPs) > 0 {
			errs.Forbidden("clusterIPs", "may not be set for ExternalName services")
		}
		if len(s.Spec.IPFamilies) > 0 {
			errs.Forbidden("ipFamilies", "may not be set for ExternalName services")
		}
		if s.Spec.IPFamilyPolicy != nil {
			errs.Forbidden("ipFamilyPolicy", "may not be set for ExternalName services")
		}
		if name := strings.TrimSuffix(s.Spec.ExternalName, "."); name == "" {
			errs.Required("externalName", "")
		} else {
			check.DNSSubdomain(errs, "externalName", name)
		}
	}
}

func validateServicePorts(errs *resource.Errors, s *corev1.Service) {
	ports := s.Spec.Ports
	for i := range ports {
		p, at, before := &ports[i], errs.At("ports[%d]", i), ports[:i]
		switch {
		case p.Name != "":
			check.DNSLabel(at, "name", p.Name)
			if slices.ContainsFunc(before, func(o corev1.ServicePort) bool { return o.Name == p.Name }) {
				at.Duplicate("name", p.Name)
			}
		case len(ports) > 1:
			at.Required("name", "")
		}
		check.Port(at, "port", p.Port)
		check.Protocol(at, p.Protocol)
		check.PortOrName(at, "targetPort", p.TargetPort)
		if p.AppProtocol != nil {
			check.QualifiedName(at, "appProtocol", *p.AppProtocol)
		}
		sameNodePort := func(o corev1.ServicePort) bool { return o.NodePort == p.NodePort && o.Protocol == p.Protocol }
		if p.NodePort != 0 && slices.ContainsFunc(before, sameNodePort) {
			at.Duplicate("nodePort", p.NodePort)
		}
		samePort := func(o corev1.ServicePort) bool { return o.Port == p.Port && o.Protocol == p.Protocol }
		if slices.ContainsFunc(before, samePort) {
			at.Duplicate("", struct {
				Protocol corev1.Protocol `json:"protocol"`
				Port     int32           `json:"port"`
			}{p.Protocol, p.Port})
		}
	}
}

func validateSessionAffinity(errs *resource.Errors, s *corev1.ServiceSpec) {
	check.RequiredOneOf(errs, "sessionAffinity", s.SessionAffinity, corev1.ServiceAffinityClientIP, corev1.ServiceAffinityNone)
	c := s.SessionAffinityConfig
	if s.SessionAffinity == corev1.ServiceAffinityNone && c != nil {
		errs.Forbidden("sessionAffinityConfig", "must not be set when session affinity is None")
	}
	if s.SessionAffinity != corev1.ServiceAffinityClientIP {
		return
	}
	const detail = "when session affinity type is ClientIP"
	switch {
	case c == nil:
		errs.Required("sessionAffinityConfig", detail)
	case c.ClientIP == nil:
		errs.Required("sessionAffinityConfig.clientIP", detail)
	case c.ClientIP.TimeoutSeconds == nil:
		errs.Required("sessionAffinityConfig.clientIP.timeoutSeconds", detail)
	case *c.ClientIP.TimeoutSeconds <= 0 || *c.ClientIP.TimeoutSeconds > 86400:
		errs.Invalid("sessionAffinityConfig.clientIP.timeoutSeconds", *c.ClientIP.TimeoutSeconds, "must be greater than 0 and less than 86400")
	}
}

// validateClusterIPs checks addresses and families by themselves and together.
// What the cluster can give is checked when they are taken.
func validateClusterIPs(errs *resource.Errors, s, old *corev1.Service) {
	if s.Spec.Type == corev1.ServiceTypeExternalName {
		return
	}
	ips := s.Spec.ClusterIPs
	switch {
	case s.Spec.ClusterIP != "" && len(ips) == 0:
		errs.Required("clusterIPs", "")
	case s.Spec.ClusterIP != "" && ips[0] != s.Spec.ClusterIP:
		errs.Invalid("clusterIPs", ips, "first value must match `clusterIP`")
	case s.Spec.ClusterIP == "" && len(ips) > 0:
		errs.Invalid("clusterIPs", ips, "must be empty when `clusterIP` is not specified")
	}
	for i, family := range s.Spec.IPFamilies {
		at := errs.At("ipFamilies[%d]", i)
		check.OneOf(at, "", family, corev1.IPv4Protocol, corev1.IPv6Protocol)
		if slices.Contains(s.Spec.IPFamilies[:i], family) {
			at.Duplicate("", family)
		}
	}
	if s.Spec.IPFamilyPolicy != nil {
		check.OneOf(errs, "ipFamilyPolicy", *s.Spec.IPFamilyPolicy, corev1.IPFamilyPolicyPreferDualStack,
			corev1.IPFamilyPolicyRequireDualStack, corev1.IPFamilyPolicySingleStack)
	}
	before := errs.Len()
	for i, ip := range ips {
		if i == 0 && ip == corev1.ClusterIPNone {
			if len(ips) > 1 {
				errs.Invalid("clusterIPs", ips, "'None' must be the first and only value")
			}
			continue
		}
		check.IP(errs.At("clusterIPs[%d]", i), "", ip, old.Spec.ClusterIPs...)
	}
	if len(ips) > 2 {
		errs.Invalid("clusterIPs", ips, "may only hold up to 2 values")
	}
	if errs.Len() > before {
		return // the rest would only repeat it in other words
	}
	if dual, err := netutils.IsDualStackIPStrings(ips); len(ips) > 1 && err == nil && !dual {
		errs.Invalid("clusterIPs", ips, "may specify no more than one IP for each IP family")
	}
	for i, ip := range ips {
		if Headless(s) || i >= len(s.Spec.IPFamilies) {
			break
		}
		if family := s.Spec.IPFamilies[i]; family != familyOf(ip) {
			errs.At("clusterIPs[%d]", i).Invalid("", ip, fmt.Sprintf("expected an %s value as indicated by `ipFamilies[%v]`", family, i))
		}
	}
}

func familyOf(ip string) corev1.IPFamily {
	if netutils.IsIPv6String(ip) {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}

func validateLoadBalancer(root *resource.Errors, s, old *corev1.Service) {
	errs, balanced := root.At("spec"), s.Spec.Type == corev1.ServiceTypeLoadBalancer
	const detail = "may only be used when `type` is 'LoadBalancer'"
	if len(s.Spec.LoadBalancerSourceRanges) > 0 {
		if !balanced {
			errs.Forbidden("LoadBalancerSourceRanges", detail)
		}
		for i, cidr := range s.Spec.LoadBalancerSourceRanges {
			check.CIDR(errs.At("LoadBalancerSourceRanges[%d]", i), "", strings.TrimSpace(cidr), old.Spec.LoadBalancerSourceRanges...)
		}
	} else if list, ok := s.Annotations[corev1.AnnotationLoadBalancerSourceRangesKey]; ok {
		at := root.At("metadata.annotations[%s]", corev1.AnnotationLoadBalancerSourceRangesKey)
		if !balanced {
			at.Forbidden("", detail)
		}
		if list = strings.TrimSpace(list); list != "" {
			for cidr := range strings.SplitSeq(list, ",") {
				check.CIDR(at, "", strings.TrimSpace(cidr))
			}
		}
	}
	if s.Spec.AllocateLoadBalancerNodePorts != nil && !balanced {
		errs.Forbidden("allocateLoadBalancerNodePorts", detail)
	}
	if s.Spec.AllocateLoadBalancerNodePorts == nil && balanced {
		root.Required("allocateLoadBalancerNodePorts", "")
	}
	if class := s.Spec.LoadBalancerClass; class != nil {
		if balanced {
			check.QualifiedName(errs, "loadBalancerClass", *class)
		} else {
			errs.Forbidden("loadBalancerClass", detail)
		}
	}
}

func validateTrafficPolicies(errs *resource.Errors, s *corev1.Service) {
	switch policy := s.Spec.ExternalTrafficPolicy; {
	case ExternallyAccessible(s):
		check.RequiredOneOf(errs, "externalTrafficPolicy", policy,
			corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal)
	case policy != "":
		errs.Invalid("externalTrafficPolicy", policy, "may only be set for externally-accessible services")
	}
	switch port := s.Spec.HealthCheckNodePort; {
	case port == 0: // if it is needed, one is taken with the write
	case NeedsHealthCheckPort(s):
		check.Port(errs, "healthCheckNodePort", port)
	default:
		errs.Invalid("healthCheckNodePort", port, "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'")
	}
	if policy := s.Spec.InternalTrafficPolicy; policy != nil {
		check.OneOf(errs, "internalTrafficPolicy", *policy, corev1.ServiceInternalTrafficPolicyCluster, corev1.ServiceInternalTrafficPolicyLocal)
	} else if hasClusterIPs(s) {
		errs.Required("internalTrafficPolicy", "")
	}
	if d := s.Spec.TrafficDistribution; d != nil {
		check.OneOf(errs, "trafficDistribution", *d, corev1.ServiceTrafficDistributionPreferClose,
			corev1.ServiceTrafficDistributionPreferSameNode, corev1.ServiceTrafficDistributionPreferSameZone)
	}
}

// validateServiceChange checks what may not change once it is allocated. From and
// to ExternalName everything may.
func validateServiceChange(s, old *corev1.Service, errs *resource.Errors) {
	if NeedsHealthCheckPort(old) && NeedsHealthCheckPort(s) && s.Spec.HealthCheckNodePort != old.Spec.HealthCheckNodePort {
		errs.Forbidden("healthCheckNodePort", "field is immutable")
	}
	const balancer = corev1.ServiceTypeLoadBalancer
	if old.Spec.Type == balancer && s.Spec.Type == balancer && !equalPtr(old.Spec.LoadBalancerClass, s.Spec.LoadBalancerClass) {
		errs.Invalid("loadBalancerClass", s.Spec.LoadBalancerClass, "may not change once set")
	}
	if !hasClusterIPs(s) || !hasClusterIPs(old) {
		return
	}
	single := s.Spec.IPFamilyPolicy != nil && *s.Spec.IPFamilyPolicy == corev1.IPFamilyPolicySingleStack
	if !Headless(s) || !Headless(old) {
		validatePrimaryKept(errs, "clusterIPs", "clusterIP", change{now: s.Spec.ClusterIPs, was: old.Spec.ClusterIPs, single: single})
	}
	// Families that are not given are those of the addresses.
	if !Headless(s) && !Headless(old) && len(s.Spec.IPFamilies) > 0 {
		validatePrimaryKept(errs, "ipFamilies", "ipFamily", change{now: texts(s.Spec.IPFamilies), was: texts(old.Spec.IPFamilies), single: single})
	}
}

func equalPtr(a, b *string) bool { return (a == nil) == (b == nil) && (a == nil || *a == *b) }

func texts(families []corev1.IPFamily) []string {
	list := make([]string, len(families))
	for i, f := range families {
		list[i] = string(f)
	}
	return list
}

// change is a list of one or two values, before and after.
type change struct {
	now, was []string
	single   bool // the service says that it wants one only
}

// validatePrimaryKept lets a second value come and go, and nothing else.
func validatePrimaryKept(errs *resource.Errors, list, value string, c change) {
	if len(c.now) < len(c.was) {
		if len(c.now) == 0 {
			errs.At("%s[0]", list).Invalid("", c.now, fmt.Sprintf("primary %s can not be unset", value))
		}
		if len(c.now) == 1 && !c.single {
			errs.Invalid("ipFamilyPolicy", nil, fmt.Sprintf("must be set to 'SingleStack' when releasing the secondary %s", value))
		}
	}
	for i := range min(len(c.now), len(c.was)) {
		if c.now[i] != c.was[i] {
			errs.At("%s[%d]", list, i).Invalid("", c.now, "may not change once set")
		}
	}
}

// validateServiceStatus checks what a load balancer says of a service.
func validateServiceStatus(s, old *corev1.Service, errs *resource.Errors) {
	var before []string
	for _, in := range old.Status.LoadBalancer.Ingress {
		before = append(before, in.IP)
	}
	ingress := s.Status.LoadBalancer.Ingress
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer && len(ingress) > 0 {
		errs.Forbidden("status.loadBalancer.ingress", "may only be used when `spec.type` is 'LoadBalancer'")
		return
	}
	for i := range ingress {
		in, at := &ingress[i], errs.At("status.loadBalancer.ingress[%d]", i)
		if in.IP != "" {
			check.IP(at, "ip", in.IP, before...)
		}
		switch {
		case in.IPMode == nil && in.IP != "":
			at.Required("ipMode", "must be specified when `ip` is set")
		case in.IPMode != nil && in.IP == "":
			at.Forbidden("ipMode", "may not be specified when `ip` is not set")
		case in.IPMode != nil:
			check.OneOf(at, "ipMode", *in.IPMode, corev1.LoadBalancerIPModeProxy, corev1.LoadBalancerIPModeVIP)
		}
		if in.Hostname != "" {
			check.DNSSubdomain(at, "hostname", in.Hostname)
			if netutils.ParseIPSloppy(in.Hostname) != nil {
				at.Invalid("hostname", in.Hostname, "must be a DNS name, not an IP address")
			}
		}
	}
}

// CheckNonSpecialIP refuses addresses that mean something else on every machine.
func CheckNonSpecialIP(errs *resource.Errors, at, address string) {
	ip := netutils.ParseIPSloppy(address)
	if ip == nil {
		errs.Invalid(at, address, "must be a valid IP address")
		return
	}
	if ip.IsUnspecified() {
		errs.Invalid(at, address, fmt.Sprintf("may not be unspecified (%v)", address))
	}
	if ip.IsLoopback() {
		errs.Invalid(at, address, "may not be in the loopback range (127.0.0.0/8, ::1/128)")
	}
	if ip.IsLinkLocalUnicast() {
		errs.Invalid(at, address, "may not be in the link-local range (169.254.0.0/16, fe80::/10)")
	}
	if ip.IsLinkLocalMulticast() {
		errs.Invalid(at, address, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)")
	}
}

// warnService says what a client will hardly want of a service.
func warnService(s, _ *corev1.Service) []string {
	var w check.Warnings
	if s.DeletionTimestamp != nil {
		return nil
	}
	if _, has := s.Annotations[corev1.DeprecatedAnnotationTopologyAwareHints]; has {
		w.Add("annotation %s is deprecated, please use %s instead", corev1.DeprecatedAnnotationTopologyAwareHints, corev1.AnnotationTopologyMode)
	}
	for i, ip := range s.Spec.ClusterIPs {
		if ip != corev1.ClusterIPNone {
			w.IP(fmt.Sprintf("spec.clusterIPs[%d]", i), ip)
		}
	}
	headless := Headless(s)
	if headless {
		if s.Spec.LoadBalancerIP != "" {
			w.Add("spec.loadBalancerIP is ignored for headless services")
		}
		if len(s.Spec.ExternalIPs) > 0 {
			w.Add("spec.externalIPs is ignored for headless services")
		}
		if s.Spec.SessionAffinity != corev1.ServiceAffinityNone {
			w.Add("spec.SessionAffinity is ignored for headless services")
		}
	}
	for i, ip := range s.Spec.ExternalIPs {
		w.IP(fmt.Sprintf("spec.externalIPs[%d]", i), ip)
	}
	if len(s.Spec.ExternalIPs) > 0 && !headless && s.Spec.Type != corev1.ServiceTypeExternalName {
		w.Add("spec.externalIPs is deprecated and may no longer be implemented in some clusters")
	}
	if s.Spec.LoadBalancerIP != "" {
		w.IP("spec.loadBalancerIP", s.Spec.LoadBalancerIP)
	}
	for i, cidr := range s.Spec.LoadBalancerSourceRanges {
		w.CIDR(fmt.Sprintf("spec.loadBalancerSourceRanges[%d]", i), cidr)
	}
	if s.Spec.Type == corev1.ServiceTypeExternalName && len(s.Spec.ExternalIPs) > 0 {
		w.Add(`spec.externalIPs is ignored when spec.type is "ExternalName"`)
	}
	if s.Spec.Type != corev1.ServiceTypeExternalName && s.Spec.ExternalName != "" {
		w.Add(`spec.externalName is ignored when spec.type is not "ExternalName"`)
	}
	if d := s.Spec.TrafficDistribution; d != nil && *d == corev1.ServiceTrafficDistributionPreferClose {
		w.Add(`spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"`)
	}
	return w
}
