package core

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/core/check"
	"github.com/kemudi/kemudi/internal/resource"
)

// Services is names and addresses that stand for a set of pods.
//
// service_validate.go refuses bad ones, service_alloc.go takes cluster IPs and
// node ports.
var Services = resource.Define(resource.Spec[*corev1.Service]{
	Names: resource.Names{
		Version: "v1", Kind: "Service", Plural: "services",
		Short: []string{"svc"}, Categories: []string{"all"}, Namespaced: true, StoragePrefix: "services/specs", NameRule: resource.DNS1123Label,
	},
	Deletion: resource.Deletion[*corev1.Service]{AnswersDeleted: true},
	Update:   resource.UpdateCreates,
	Default:  defaultService, Prepare: prepareService, Validate: validateService, Warn: warnService, Unique: resource.Unique[*corev1.Service]{Commit: commitService},
	Columns: serviceColumns,
	Fields: map[string]func(*corev1.Service) string{
		"spec.clusterIP": func(s *corev1.Service) string { return s.Spec.ClusterIP },
		"spec.type":      func(s *corev1.Service) string { return string(s.Spec.Type) },
	},
	OldFields: serviceOldFields,
	Index: map[string]func(*corev1.Service) []string{
		IndexClusterIP: func(s *corev1.Service) []string { return s.Spec.ClusterIPs },
		IndexCertificate: func(s *corev1.Service) []string {
			if s.Spec.Type != corev1.ServiceTypeLoadBalancer || ServiceBalanced(s) == nil {
				return nil
			}
			names := BalancerSecrets(s)
			for i := range names {
				names[i] = s.Namespace + "/" + names[i]
			}
			return names
		},
		IndexTopologyMode: func(s *corev1.Service) []string {
			if TopologyModeAuto(s) {
				return []string{TopologyAuto}
			}
			return nil
		},
	},
	Sub: []resource.Sub[*corev1.Service]{
		{Name: "status", Merge: func(s, old *corev1.Service) { s.Spec = old.Spec }, Validate: validateServiceStatus},
		{Name: "proxy", Verbs: proxyVerbs, Handler: resource.HandleProxy, Body: &resource.Body{
			Version: "v1", Kind: "ServiceProxyOptions", New: func() runtime.Object { return &corev1.ServiceProxyOptions{} },
		}},
	},
})

// Indexes of Services.
const (
	IndexClusterIP    = "clusterIP"    // their cluster IPs
	IndexTopologyMode = "topologyMode" // TopologyAuto for those that ask for it
	IndexCertificate  = "certificate"  // namespace/name of the Secrets by which the cluster's own balancer speaks TLS
	TopologyAuto      = "Auto"
)

// TopologyModeAuto says that the endpoints of a service are to be shared out
// among the zones.
func TopologyModeAuto(s *corev1.Service) bool {
	mode, ok := s.Annotations[corev1.AnnotationTopologyMode]
	if !ok {
		mode = s.Annotations[corev1.DeprecatedAnnotationTopologyAwareHints]
	}
	return mode == TopologyAuto || mode == "auto"
}

func defaultService(s *corev1.Service) {
	spec := &s.Spec
	check.SetIfZero(&spec.SessionAffinity, corev1.ServiceAffinityNone)
	switch spec.SessionAffinity {
	case corev1.ServiceAffinityNone:
		spec.SessionAffinityConfig = nil
	case corev1.ServiceAffinityClientIP:
		c := spec.SessionAffinityConfig
		if c == nil || c.ClientIP == nil || c.ClientIP.TimeoutSeconds == nil {
			spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{
				ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr.To(corev1.DefaultClientIPServiceAffinitySeconds)},
			}
		}
	}
	check.SetIfZero(&spec.Type, corev1.ServiceTypeClusterIP)
	for i := range spec.Ports {
		port := &spec.Ports[i]
		check.SetIfZero(&port.Protocol, corev1.ProtocolTCP)
		if port.TargetPort == intstr.FromInt32(0) || port.TargetPort == intstr.FromString("") {
			port.TargetPort = intstr.FromInt32(port.Port)
		}
	}
	if ExternallyAccessible(s) {
		check.SetIfZero(&spec.ExternalTrafficPolicy, corev1.ServiceExternalTrafficPolicyCluster)
	}
	switch policy := spec.InternalTrafficPolicy; {
	case policy == nil && hasClusterIPs(s):
		spec.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyCluster)
	case policy != nil && spec.Type == corev1.ServiceTypeExternalName && (*policy == corev1.ServiceInternalTrafficPolicyCluster || *policy == corev1.ServiceInternalTrafficPolicyLocal):
		spec.InternalTrafficPolicy = nil // it was a default of every type once, and is taken in, and not kept
	}
	if spec.Type == corev1.ServiceTypeLoadBalancer {
		if spec.AllocateLoadBalancerNodePorts == nil {
			spec.AllocateLoadBalancerNodePorts = ptr.To(true)
		}
		for i := range s.Status.LoadBalancer.Ingress {
			if in := &s.Status.LoadBalancer.Ingress[i]; in.IP != "" && in.IPMode == nil {
				in.IPMode = ptr.To(corev1.LoadBalancerIPModeVIP)
			}
		}
	}
}

// ExternallyAccessible reports whether a service is made to be reached from
// outside the cluster.
func ExternallyAccessible(s *corev1.Service) bool {
	return hasNodePorts(s) || s.Spec.Type == corev1.ServiceTypeClusterIP && len(s.Spec.ExternalIPs) > 0
}

// NeedsHealthCheckPort reports whether nodes must tell a load balancer whether
// they have endpoints of a service.
func NeedsHealthCheckPort(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeLoadBalancer && s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// Headless reports whether a service has no address of its own.
func Headless(s *corev1.Service) bool {
	return len(s.Spec.ClusterIPs) == 1 && s.Spec.ClusterIPs[0] == corev1.ClusterIPNone
}

// hasClusterIPs reports whether a service of this type has cluster IPs, or
// would have if it were not headless.
func hasClusterIPs(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeClusterIP || hasNodePorts(s)
}

func hasNodePorts(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeNodePort || s.Spec.Type == corev1.ServiceTypeLoadBalancer
}

// getsNodePorts reports whether a service gets node ports that it does not ask for: a balancer may
// do without.
func getsNodePorts(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeNodePort ||
		s.Spec.Type == corev1.ServiceTypeLoadBalancer && ptr.Deref(s.Spec.AllocateLoadBalancerNodePorts, true)
}

// prepareService keeps the status and what was allocated before, and drops what
// another type of service had.
func prepareService(s, old *corev1.Service) {
	if old == nil {
		s.Status = corev1.ServiceStatus{}
		if s.Spec.ClusterIP != "" && len(s.Spec.ClusterIPs) == 0 {
			s.Spec.ClusterIPs = []string{s.Spec.ClusterIP}
		}
		return
	}
	s.Status = old.Status
	keepAllocated(s, old)
	followClusterIP(s, old)
	dropForeignFields(s, old)
}

// keepAllocated puts back what a client left out because it did not ask for it.
func keepAllocated(s, old *corev1.Service) {
	if hasClusterIPs(s) && hasClusterIPs(old) {
		if s.Spec.ClusterIP == "" {
			s.Spec.ClusterIP = old.Spec.ClusterIP
		}
		if len(s.Spec.ClusterIPs) == 0 {
			s.Spec.ClusterIPs = old.Spec.ClusterIPs
		}
	}
	if getsNodePorts(s) && hasNodePorts(old) {
		keepNodePorts(s.Spec.Ports, old.Spec.Ports)
	}
	if NeedsHealthCheckPort(s) && NeedsHealthCheckPort(old) && s.Spec.HealthCheckNodePort == 0 {
		s.Spec.HealthCheckNodePort = old.Spec.HealthCheckNodePort
	}
}

// keepNodePorts tells ports apart by their names: what else is said of one may change.
func keepNodePorts(ports, old []corev1.ServicePort) {
	had, used := map[string]int32{}, map[int32]bool{}
	for _, p := range old {
		had[p.Name] = p.NodePort
	}
	for _, p := range ports {
		used[p.NodePort] = true
	}
	for i := range ports {
		nodePort := had[ports[i].Name]
		if ports[i].NodePort == 0 && nodePort != 0 && !used[nodePort] {
			ports[i].NodePort = nodePort
		}
	}
}

// followClusterIP makes the list follow the field of the first release, for
// clients that know that one only.
func followClusterIP(s, old *corev1.Service) {
	if s.Spec.ClusterIP == old.Spec.ClusterIP {
		if len(s.Spec.ClusterIPs) == 0 {
			s.Spec.ClusterIPs = old.Spec.ClusterIPs
		}
		return
	}
	if !slices.Equal(s.Spec.ClusterIPs, old.Spec.ClusterIPs) {
		return
	}
	switch {
	case s.Spec.ClusterIP == "":
		s.Spec.ClusterIPs = nil
	case len(s.Spec.ClusterIPs) == 0:
		s.Spec.ClusterIPs = []string{s.Spec.ClusterIP}
	default:
		s.Spec.ClusterIPs = slices.Clone(s.Spec.ClusterIPs)
		s.Spec.ClusterIPs[0] = s.Spec.ClusterIP
	}
}

// dropForeignFields clears fields that the new type does not have, if the client
// did not touch them: a change of type needs to change the type only.
func dropForeignFields(s, old *corev1.Service) {
	n, o := &s.Spec, &old.Spec
	if hasClusterIPs(old) && !hasClusterIPs(s) {
		if n.ClusterIP == o.ClusterIP && slices.Equal(n.ClusterIPs, o.ClusterIPs) {
			n.ClusterIP, n.ClusterIPs = "", nil
		}
		if slices.Equal(n.IPFamilies, o.IPFamilies) {
			n.IPFamilies = nil
		}
		if ptr.Equal(n.IPFamilyPolicy, o.IPFamilyPolicy) {
			n.IPFamilyPolicy = nil
		}
	}
	if hasNodePorts(old) && !hasNodePorts(s) && !addsNodePorts(n.Ports, o.Ports) {
		for i := range n.Ports {
			n.Ports[i].NodePort = 0
		}
	}
	if NeedsHealthCheckPort(old) && !NeedsHealthCheckPort(s) && n.HealthCheckNodePort == o.HealthCheckNodePort {
		n.HealthCheckNodePort = 0
	}
	if o.Type == corev1.ServiceTypeLoadBalancer && n.Type != corev1.ServiceTypeLoadBalancer {
		if ptr.Equal(n.AllocateLoadBalancerNodePorts, o.AllocateLoadBalancerNodePorts) {
			n.AllocateLoadBalancerNodePorts = nil
		}
		if ptr.Equal(n.LoadBalancerClass, o.LoadBalancerClass) {
			n.LoadBalancerClass = nil
		}
	}
	if ExternallyAccessible(old) && !ExternallyAccessible(s) && n.ExternalTrafficPolicy == o.ExternalTrafficPolicy {
		n.ExternalTrafficPolicy = ""
	}
	// What there was of a balancer goes with the type; its finalizer stays for whoever has it removed.
	if n.Type != corev1.ServiceTypeLoadBalancer {
		s.Status.LoadBalancer = corev1.LoadBalancerStatus{}
	}
}

// addsNodePorts reports whether some ports have a node port that none of the old ones has.
func addsNodePorts(ports, old []corev1.ServicePort) bool {
	had := nodePorts(old)
	return slices.ContainsFunc(nodePorts(ports), func(port int32) bool { return port != 0 && !slices.Contains(had, port) })
}

// nodePorts are the node ports of a service, in the order of its ports.
func nodePorts(ports []corev1.ServicePort) []int32 {
	list := make([]int32, len(ports))
	for i := range ports {
		list[i] = ports[i].NodePort
	}
	return list
}

var serviceColumns = []resource.Column[*corev1.Service]{
	{
		Name: "Type", Description: corev1.ServiceSpec{}.SwaggerDoc()["type"],
		Value: func(s *corev1.Service) any { return string(s.Spec.Type) },
	},
	{
		Name: "Cluster-IP", Description: corev1.ServiceSpec{}.SwaggerDoc()["clusterIP"],
		Value: func(s *corev1.Service) any {
			if len(s.Spec.ClusterIPs) == 0 {
				return "<none>"
			}
			return s.Spec.ClusterIPs[0]
		},
	},
	{
		Name: "External-IP", Description: corev1.ServiceSpec{}.SwaggerDoc()["externalIPs"],
		Value: func(s *corev1.Service) any { return externalAddresses(s) },
	},
	{
		Name: "Port(s)", Description: corev1.ServiceSpec{}.SwaggerDoc()["ports"],
		Value: func(s *corev1.Service) any { return servicePorts(s.Spec.Ports) },
	},
	{
		Name: "Selector", Priority: 1, Description: corev1.ServiceSpec{}.SwaggerDoc()["selector"],
		Value: func(s *corev1.Service) any { return formatLabels(s.Spec.Selector) },
	},
}

// externalAddresses are the addresses by which a service is reached from outside.
func externalAddresses(s *corev1.Service) string {
	switch s.Spec.Type {
	case corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort:
		return orNone(strings.Join(s.Spec.ExternalIPs, ","))
	case corev1.ServiceTypeExternalName:
		return s.Spec.ExternalName
	case corev1.ServiceTypeLoadBalancer:
		found := map[string]bool{}
		for _, in := range s.Status.LoadBalancer.Ingress {
			if in.IP != "" {
				found[in.IP] = true
			} else if in.Hostname != "" {
				found[in.Hostname] = true
			}
		}
		addresses := slices.Sorted(maps.Keys(found))
		switch addresses = append(addresses, s.Spec.ExternalIPs...); {
		case len(addresses) == 0:
			return "<pending>"
		default:
			return strings.Join(addresses, ",")
		}
	}
	return "<unknown>"
}
