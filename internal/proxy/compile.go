package proxy

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/podnet/nft"
)

// NodeFacts is what the rules depend on of the Node object.
type NodeFacts struct {
	Name         string
	Zone, Region string
	Addrs        []netip.Addr
	Primary      []netip.Prefix // its first address of each family, alone in a prefix
}

// fragment is what one service, or one pod's host ports, adds to the rules of
// one family (P4).
type fragment struct {
	elems  []Elem
	chains []Chain
	picks  []uint32 // the pick chains it uses
	// places are the endpoints of each plain cluster IP port in the order of
	// their index, for keepPlaces.
	places map[portKey][]netip.AddrPort
	flows  []flow
	// The local endpoints' addresses, for the service's health check.
	localReady map[netip.Addr]bool
}

// flow is a UDP port of ours and where connections made to it may go now.
// Without Addr it means all addresses of this node.
type flow struct {
	Family nft.Family
	Addr   netip.Addr
	Port   uint16
	Valid  []netip.AddrPort
}

// foreign says whether the labels of a Service or slice keep it from every proxy
// that is like kube-proxy: it is another one's, or is to be treated as headless
// whatever else it says.
func foreign(labels map[string]string) bool {
	_, other := labels["service.kubernetes.io/service-proxy-name"]
	_, headless := labels[corev1.IsHeadlessService]
	return other || headless
}

// proxied says whether a Service is this proxy's business at all.
func proxied(svc *corev1.Service) bool {
	if foreign(svc.Labels) {
		return false
	}
	return svc.Spec.Type != corev1.ServiceTypeExternalName && svc.Spec.ClusterIP != corev1.ClusterIPNone && svc.Spec.ClusterIP != ""
}

// scene is what a fragment depends on besides the objects it is made of.
type scene struct {
	cfg    *Config
	node   *NodeFacts
	family nft.Family
}

// compiler makes the fragment of one service in one family.
type compiler struct {
	scene
	*fragment
	svc  *corev1.Service
	vip  netip.Addr // the cluster IP
	seen map[Key]bool
}

// compileService is the heart of the proxy: what the Service and its slices
// mean on this node. before is the service's last fragment, or nil.
func compileService(at scene, svc *corev1.Service, all []*discoveryv1.EndpointSlice, before *fragment) *fragment {
	frag := &fragment{places: map[portKey][]netip.AddrPort{}, localReady: map[netip.Addr]bool{}}
	vip, ok := clusterIP(svc, at.family)
	if !proxied(svc) || !ok {
		return frag
	}
	c := compiler{scene: at, fragment: frag, svc: svc, vip: vip, seen: map[Key]bool{}}
	c.add(Key{Set: ClusterIPs, Addr: vip}, Value{})
	endpoints := gather(all, at.family, at.cfg.NodeName)
	keys := core.TopologyKeys(svc)
	for i := range svc.Spec.Ports {
		p := &svc.Spec.Ports[i]
		key := portKey{p.Name, protoOf(p.Protocol)}
		eps := endpoints[key]
		var places []netip.AddrPort
		if before != nil {
			places = before.places[key]
		}
		c.port(p, key, choosePools(eps, at.node, keys), places)
		for j := range eps {
			if eps[j].local {
				c.add(Key{Set: Hairpin, Addr: eps[j].at.Addr()}, Value{})
				if eps[j].ready {
					c.localReady[eps[j].at.Addr()] = true
				}
			}
		}
	}
	return frag
}

func clusterIP(svc *corev1.Service, f nft.Family) (netip.Addr, bool) {
	ips := svc.Spec.ClusterIPs
	if len(ips) == 0 {
		ips = []string{svc.Spec.ClusterIP}
	}
	for _, ip := range ips {
		if a, err := netip.ParseAddr(ip); err == nil && familyOf(a) == f {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// add adds an element, once.
func (c *compiler) add(k Key, v Value) {
	if !c.seen[k] {
		c.seen[k] = true
		c.elems = append(c.elems, Elem{k, v})
	}
}

func (c *compiler) chain(name string, rules ...Rule) Value {
	c.chains = append(c.chains, Chain{Name: name, Rules: rules})
	return Value{Goto: name}
}

// servicePort is what is decided about one port before its elements are made.
type servicePort struct {
	*corev1.ServicePort
	proto    Proto
	suffix   string // of the names of its chains
	pools    pools
	sticky   *sticky
	external []netip.Addr // external IPs
	balancer []netip.Addr // addresses of the load balancer
	clusterC Value        // the chain for the cluster pool, once made
	localC   Value        // the chain for the local pool, once made
}

// port adds all that one service port needs.
func (c *compiler) port(spec *corev1.ServicePort, key portKey, ps pools, places []netip.AddrPort) {
	p := &servicePort{
		ServicePort: spec, proto: key.proto, pools: ps, sticky: c.affinity(spec, key.proto),
		suffix:   fmt.Sprintf("%s/%s/%s/%d", c.svc.Namespace, c.svc.Name, key.proto, spec.Port),
		external: c.externalIPs(), balancer: c.balancerIPs(),
	}
	c.internal(p, key, places)
	if len(p.external)+len(p.balancer) > 0 || spec.NodePort != 0 {
		c.externals(p)
	}
	if p.proto == UDP {
		c.udp(p)
	}
}

// internal adds the cluster IP.
func (c *compiler) internal(p *servicePort, key portKey, places []netip.AddrPort) {
	onlyLocal := deref(c.svc.Spec.InternalTrafficPolicy) == corev1.ServiceInternalTrafficPolicyLocal
	pool := p.pools.cluster
	if onlyLocal {
		pool = p.pools.local
	}
	at := Key{Set: ServiceIPs, Addr: c.vip, Proto: p.proto, Port: uint16(p.Port)}
	plain := at
	plain.Set = ServicePicks
	switch {
	case len(pool) == 0 && p.pools.any:
		c.add(plain, Value{Count: countDrop})
	case len(pool) == 0:
		c.add(plain, Value{Count: countReject})
	case p.sticky != nil && onlyLocal:
		c.add(at, c.localChain(p))
	case p.sticky != nil:
		c.add(at, c.clusterChain(p))
	default:
		placed := keepPlaces(places, pool)
		c.places[key] = placed
		n := uint32(len(placed))
		c.picks = append(c.picks, n)
		c.add(plain, Value{Count: n})
		for i, ep := range placed {
			c.add(Key{Set: ServiceEndpoints, Addr: c.vip, Proto: p.proto, Port: uint16(p.Port), Index: uint32(i)}, Value{To: ep})
		}
	}
}

// pickChain is the name of the chain that plain services with n endpoints share.
func pickChain(n uint32) string { return fmt.Sprintf("pick-%d", n) }

// pickRules are its rules. The second one is for a packet that comes just when
// the last endpoints go: it has read the old number but looks up the new elements.
func pickRules(n uint32) []Rule {
	if n == 1 {
		return []Rule{{pick{1}}, {verdict{nft.Drop, ""}}}
	}
	return []Rule{{pick{n}}, {pick{1}}, {verdict{nft.Drop, ""}}}
}

// clusterChain makes the chain that picks from the cluster pool, once.
func (c *compiler) clusterChain(p *servicePort) Value {
	if p.clusterC == (Value{}) {
		p.clusterC = c.chain("cluster/"+p.suffix, chooseRules(p.pools.cluster, p.sticky)...)
	}
	return p.clusterC
}

// localChain makes the chain that picks from the local pool, once.
func (c *compiler) localChain(p *servicePort) Value {
	if p.localC == (Value{}) {
		p.localC = c.chain("local/"+p.suffix, chooseRules(p.pools.local, p.sticky)...)
	}
	return p.localC
}

func chooseRules(pool []netip.AddrPort, s *sticky) []Rule {
	if s == nil {
		return []Rule{{choose{to: pool}}}
	}
	return []Rule{{recall{*s, pool}}, {forget{*s}}, {choose{pool, s}}}
}

// externals adds what is reachable from outside: node port, external IPs and
// load balancer addresses.
func (c *compiler) externals(p *servicePort) {
	onlyLocal := c.svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
	masquerade := Value{Goto: chainMasquerade}
	var target Value
	switch {
	case !p.pools.any:
		target = Value{Goto: chainReject}
	case onlyLocal:
		target = c.externalChain(p)
		masquerade.Goto = chainMasqueradeLocal
	default:
		target = c.clusterChain(p)
	}
	balancer := c.guarded(p, target)
	port := uint16(p.Port)
	for _, ip := range p.external {
		c.add(Key{Set: ServiceIPs, Addr: ip, Proto: p.proto, Port: port}, target)
		c.add(Key{Set: MasqueradeIPs, Addr: ip, Proto: p.proto, Port: port}, masquerade)
	}
	for _, ip := range p.balancer {
		c.add(Key{Set: ServiceIPs, Addr: ip, Proto: p.proto, Port: port}, balancer)
		c.add(Key{Set: MasqueradeIPs, Addr: ip, Proto: p.proto, Port: port}, masquerade)
	}
	if p.NodePort != 0 {
		c.add(Key{Set: NodePorts, Proto: p.proto, Port: uint16(p.NodePort)}, target)
		c.add(Key{Set: MasqueradePorts, Proto: p.proto, Port: uint16(p.NodePort)}, masquerade)
	}
}

// externalChain makes the chain of a port whose external traffic must stay on
// the node it came to. Clients in the cluster are not bound by that: pods and
// this node itself may use any endpoint, as if they came in by another node.
func (c *compiler) externalChain(p *servicePort) Value {
	var rules []Rule
	if len(p.pools.cluster) > 0 {
		anywhere := verdict{nft.Goto, c.clusterChain(p).Goto}
		for _, pods := range ofFamily(c.cfg.ClusterCIDRs, c.family) {
			rules = append(rules, Rule{from{pods, false}, anywhere})
		}
		rules = append(rules, Rule{fromLocal{}, anywhere})
	}
	if len(p.pools.local) > 0 {
		rules = append(rules, Rule{verdict{nft.Goto, c.localChain(p).Goto}})
	} else {
		rules = append(rules, Rule{verdict{nft.Drop, ""}})
	}
	return c.chain("external/"+p.suffix, rules...)
}

// guarded puts the load balancer's source ranges before target.
func (c *compiler) guarded(p *servicePort, target Value) Value {
	ranges, all := c.sourceRanges()
	if all || len(p.balancer) == 0 || target.Goto == "" {
		return target
	}
	pass := verdict{nft.Goto, target.Goto}
	var rules []Rule
	fromNode := false
	for _, r := range ranges {
		rules = append(rules, Rule{from{r, false}, pass})
		for _, a := range c.node.Addrs {
			fromNode = fromNode || r.Contains(a)
		}
	}
	if fromNode {
		// The load balancer's address may have been added to this node. Then
		// connections from here to it have that address as their source as well.
		for _, ip := range p.balancer {
			rules = append(rules, Rule{from{netip.PrefixFrom(ip, ip.BitLen()), false}, pass})
		}
	}
	return c.chain("firewall/"+p.suffix, append(rules, Rule{verdict{nft.Drop, ""}})...)
}

// sourceRanges returns the family's ranges; all says that there is no limit.
func (c *compiler) sourceRanges() (ranges []netip.Prefix, all bool) {
	for _, s := range c.svc.Spec.LoadBalancerSourceRanges {
		p, err := netip.ParsePrefix(strings.TrimSpace(s))
		if err != nil || familyOf(p.Addr()) != c.family {
			continue
		}
		if p.Bits() == 0 {
			return nil, true
		}
		ranges = append(ranges, p.Masked())
	}
	return ranges, len(ranges) == 0
}

func (c *compiler) affinity(p *corev1.ServicePort, proto Proto) *sticky {
	if c.svc.Spec.SessionAffinity != corev1.ServiceAffinityClientIP {
		return nil
	}
	seconds := int32(corev1.DefaultClientIPServiceAffinitySeconds)
	if cfg := c.svc.Spec.SessionAffinityConfig; cfg != nil && cfg.ClientIP != nil && cfg.ClientIP.TimeoutSeconds != nil {
		seconds = *cfg.ClientIP.TimeoutSeconds
	}
	return &sticky{netip.AddrPortFrom(c.vip, uint16(p.Port)), proto, time.Duration(seconds) * time.Second}
}

func (c *compiler) externalIPs() []netip.Addr {
	return addrs(c.svc.Spec.ExternalIPs, c.family)
}

func (c *compiler) balancerIPs() []netip.Addr {
	if c.svc.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return nil
	}
	var ips []string
	for _, in := range c.svc.Status.LoadBalancer.Ingress {
		if deref(in.IPMode) != corev1.LoadBalancerIPModeProxy {
			ips = append(ips, in.IP)
		}
	}
	return addrs(ips, c.family)
}

func addrs(ips []string, f nft.Family) []netip.Addr {
	var found []netip.Addr
	for _, ip := range ips {
		if a, err := netip.ParseAddr(ip); err == nil && familyOf(a) == f {
			found = append(found, a)
		}
	}
	return found
}

// udp notes where flows to the port may go, so that those which go elsewhere
// can be ended: nothing else would tell their clients.
func (c *compiler) udp(p *servicePort) {
	valid := p.pools.serving
	port := uint16(p.Port)
	c.flows = append(c.flows, flow{c.family, c.vip, port, valid})
	for _, ip := range append(p.external, p.balancer...) {
		c.flows = append(c.flows, flow{c.family, ip, port, valid})
	}
	if p.NodePort != 0 {
		c.flows = append(c.flows, flow{Family: c.family, Port: uint16(p.NodePort), Valid: valid})
	}
}

// compilePod makes the fragment of a pod's host ports in one family.
func compilePod(pod *corev1.Pod, f nft.Family) *fragment {
	frag := &fragment{}
	ip, ok := podIP(pod, f)
	if !ok || pod.Spec.HostNetwork || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return frag
	}
	seen := map[Key]bool{}
	ports := func(list []corev1.ContainerPort) {
		for i := range list {
			frag.hostPort(&list[i], ip, f, seen)
		}
	}
	for i := range pod.Spec.InitContainers {
		if deref(pod.Spec.InitContainers[i].RestartPolicy) == corev1.ContainerRestartPolicyAlways {
			ports(pod.Spec.InitContainers[i].Ports)
		}
	}
	for i := range pod.Spec.Containers {
		ports(pod.Spec.Containers[i].Ports)
	}
	if len(frag.elems) > 0 {
		frag.elems = append(frag.elems, Elem{Key: Key{Set: Hairpin, Addr: ip}})
	}
	return frag
}

func (frag *fragment) hostPort(p *corev1.ContainerPort, pod netip.Addr, f nft.Family, seen map[Key]bool) {
	if p.HostPort == 0 {
		return
	}
	proto, port := protoOf(p.Protocol), uint16(p.HostPort)
	to := Value{To: netip.AddrPortFrom(pod, uint16(p.ContainerPort))}
	at := Key{Set: HostPorts, Proto: proto, Port: port}
	masquerade := Key{Set: MasqueradePorts, Proto: proto, Port: port}
	if p.HostIP != "" {
		ip, err := netip.ParseAddr(p.HostIP)
		if err != nil || familyOf(ip) != f {
			return
		}
		if !ip.IsUnspecified() {
			at.Set, at.Addr = HostPortIPs, ip
			masquerade.Set, masquerade.Addr = MasqueradeIPs, ip
		}
	}
	if seen[at] {
		return
	}
	seen[at] = true
	frag.elems = append(frag.elems, Elem{at, to}, Elem{masquerade, Value{Goto: chainMasqueradeLocal}})
	if proto == UDP {
		frag.flows = append(frag.flows, flow{f, at.Addr, port, []netip.AddrPort{to.To}})
	}
}

func podIP(pod *corev1.Pod, f nft.Family) (netip.Addr, bool) {
	ips := []string{pod.Status.PodIP}
	for _, ip := range pod.Status.PodIPs {
		ips = append(ips, ip.IP)
	}
	found := addrs(ips, f)
	if len(found) == 0 {
		return netip.Addr{}, false
	}
	return found[0], true
}
