package proxy

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/podnet/nft"
	"github.com/kemudi/kemudi/internal/podnet/nft/table"
	"github.com/kemudi/kemudi/internal/proxy/userspace"
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
	elems []table.Elem
	ways  []way // the shared chains that it may use, whatever endpoints there are
	pools []*pool
	turns map[turn]table.Chain
	// counted are the endpoints of these, where connections are counted.
	counted map[counted]bool
	flows   []flow
	away    away
	// The local endpoints' addresses, for the service's health check.
	localReady map[netip.Addr]bool
	targets    map[portKey]userspace.Target // of ports whose connections this process takes
	looped     map[uint16]userspace.Target  // of node ports whose connections to ::1 it takes
}

// away counts ports whose endpoints are all elsewhere, although their traffic must stay on this node: from within the
// cluster, and from outside.
type away struct{ internal, external int }

// flow is a UDP port of ours and where connections made to it may go now.
// Without Addr it means all addresses of this node.
type flow struct {
	Family nft.Family
	Addr   netip.Addr
	Port   uint16
	Valid  []netip.AddrPort // in order
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
	// numbers are of the chains of pools whose endpoints are in turn.
	numbers *turns
	// ports are those at which this process takes connections; nil: it takes none.
	ports map[userspace.Key]uint16
	// counts are how many connections endpoints have.
	counts map[counted]int
}

// compiler makes the fragment of one service in one family.
type compiler struct {
	scene
	*fragment
	before *fragment // the last one; nil: there is none
	begun  int       // how many pools there were before the port that is at work
	svc    *corev1.Service
	vip    netip.Addr        // the cluster IP
	relay  *core.Relay       // what its balancer, ours, does beside passing packets on; nil: nothing
	broken error             // why it passes nothing on
	seen   map[table.ID]bool // the elements; nil: they are few
}

// compileService is the heart of the proxy: what the Service and its endpoints
// mean on this node. before is the service's last fragment, or nil. There is none in a family of which the
// Service has no address.
func compileService(at scene, svc *corev1.Service, endpoints map[portKey][]*endpoint, before *fragment) *fragment {
	vip, ok := clusterIP(svc, at.family)
	if !ok {
		return nil
	}
	frag := &fragment{}
	c := compiler{scene: at, fragment: frag, before: before, svc: svc, vip: vip}
	if !proxied(svc) {
		if foreign(svc.Labels) && svc.Spec.Type != corev1.ServiceTypeExternalName {
			c.add(Key{Set: OtherIPs, Addr: vip}, Value{})
		}
		return frag
	}
	c.add(Key{Set: ClusterIPs, Addr: vip}, Value{})
	keys := core.TopologyKeys(svc)
	if core.ServiceBalanced(svc) != nil {
		c.relay, c.broken = core.RelayOf(svc)
	}
	for i := range svc.Spec.Ports {
		p := &svc.Spec.Ports[i]
		key := portKey{p.Name, protoOf(p.Protocol)}
		eps := merged(endpoints[key])
		c.port(p, key, choosePools(eps, at.node, keys))
		for j := range eps {
			if eps[j].local {
				c.add(Key{Set: Hairpin, Addr: eps[j].at.Addr()}, Value{})
				if eps[j].ready {
					if c.localReady == nil {
						c.localReady = map[netip.Addr]bool{}
					}
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
	e := k.elem(c.family, v)
	if c.has(e.ID) {
		return
	}
	c.elems = append(c.elems, e)
	if c.seen != nil {
		c.seen[e.ID] = true
	}
}

// fewElems is how many elements are looked through one by one: most fragments have no more, and no index.
const fewElems = 16

func (c *compiler) has(id table.ID) bool {
	if c.seen == nil && len(c.elems) > fewElems {
		c.seen = make(map[table.ID]bool, 2*len(c.elems))
		for _, e := range c.elems {
			c.seen[e.ID] = true
		}
	}
	if c.seen != nil {
		return c.seen[id]
	}
	return slices.ContainsFunc(c.elems, func(e table.Elem) bool { return e.ID == id })
}

// use notes that the way's chains must be there.
func (c *compiler) use(w way) {
	if !slices.Contains(c.ways, w) {
		c.ways = append(append(c.ways, w), w.with()...)
	}
}

// servicePort is what is decided about one port before its elements are made.
type servicePort struct {
	*corev1.ServicePort
	key      portKey
	pools    pools
	timeout  uint32       // of affinity, in seconds; 0: there is none
	external []netip.Addr // external IPs
	balancer []netip.Addr // addresses of the load balancer
}

// name is the port's name for all its frontends.
func (p *servicePort) name(c *compiler) netip.AddrPort {
	return netip.AddrPortFrom(c.vip, uint16(p.Port))
}

// port adds all that one service port needs.
func (c *compiler) port(spec *corev1.ServicePort, key portKey, ps pools) {
	p := &servicePort{ServicePort: spec, key: key, pools: ps, timeout: c.affinity(), external: c.externalIPs(), balancer: c.balancerIPs()}
	c.begun = len(c.pools)
	if ps.any && len(ps.local) == 0 {
		if deref(c.svc.Spec.InternalTrafficPolicy) == corev1.ServiceInternalTrafficPolicyLocal {
			c.away.internal++
		}
		if c.svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal && core.ExternallyAccessible(c.svc) {
			c.away.external++
		}
	}
	c.loop(p)
	c.capture(p)
	c.internal(p)
	if len(p.external)+len(p.balancer) > 0 || spec.NodePort != 0 {
		c.externals(p)
	}
	if p.key.proto == UDP {
		c.udp(p)
	}
}

// internal adds the cluster IP.
func (c *compiler) internal(p *servicePort) {
	local := deref(c.svc.Spec.InternalTrafficPolicy) == corev1.ServiceInternalTrafficPolicyLocal
	at := frontend{addr: c.vip, port: uint16(p.Port)}
	if local || p.timeout > 0 {
		c.front(p, at, c.lead(p, byIP, local))
		return
	}
	w := way{what: pick}
	f := p.nowhere()
	switch n := len(p.pools.of(local)); {
	case c.cfg.Scheduler.ordered() && n > 0:
		f.Do = c.inTurn(p, local)
	case c.cfg.Scheduler.ordered():
	default:
		c.use(w)
		if n > 0 {
			f.Do = w.number(c.pool(p, local))
		}
	}
	c.add(at.key(p, ServiceIPs), Value{Front: f})
}

// frontend is an address and port, or a port of the node, that connections are made to.
type frontend struct {
	addr netip.Addr // not valid: the node's
	port uint16
}

func (f frontend) from() origin {
	if f.addr.IsValid() {
		return byIP
	}
	return byPort
}

// key is that of the frontend in the set, which is one for frontends of its kind.
func (f frontend) key(p *servicePort, s Set) Key {
	return Key{Set: s, Addr: f.addr, Proto: p.key.proto, Port: f.port}
}

// front adds a frontend that belongs to the port.
func (c *compiler) front(p *servicePort, at frontend, f Front) {
	sets := fronts[at.from()]
	c.add(at.key(p, sets.actions), Value{Front: f})
	c.add(at.key(p, sets.owners), Value{To: p.name(c)})
}

// nowhere is what is done where a port has no endpoint that may be used.
func (p *servicePort) nowhere() Front {
	if p.pools.any {
		return Front{Do: actionDrop}
	}
	return Front{Do: actionReject}
}

// lead is a frontend from which all connections go to one pool.
func (c *compiler) lead(p *servicePort, from origin, local bool) Front {
	if p.timeout == 0 {
		w := way{what: lead, from: from, local: local}
		if !c.cfg.Scheduler.ordered() {
			c.use(w)
		}
		if len(p.pools.of(local)) == 0 {
			return p.nowhere()
		}
		if c.cfg.Scheduler.ordered() {
			return Front{Do: c.inTurn(p, local)}
		}
		return Front{Do: w.number(c.pool(p, local))}
	}
	w := way{what: sticky, from: from, local: local, timeout: p.timeout}
	c.use(w)
	f := Front{Do: w.number(p.timeout)}
	chosen := c.noted(p, from, local)
	switch {
	case chosen == actionDrop:
		return p.nowhere()
	case local:
		f.Local = chosen
	default:
		f.Cluster = chosen
	}
	return f
}

// noted is the action that chooses one of the pool for affinity.
func (c *compiler) noted(p *servicePort, from origin, local bool) uint32 {
	w := way{what: note, from: from, local: local}
	c.use(w)
	if len(p.pools.of(local)) == 0 {
		return actionDrop
	}
	return w.number(c.pool(p, local))
}

// apart is a frontend from which clients outside the cluster go to the endpoints of
// this node, and others to any.
func (c *compiler) apart(p *servicePort, from origin) Front {
	w := way{what: outside, from: from, timeout: p.timeout}
	c.use(w)
	f := Front{Do: w.number(p.timeout)}
	word := func(local bool) uint32 {
		if p.timeout > 0 {
			return c.noted(p, from, local)
		}
		return c.lead(p, from, local).Do
	}
	f.Cluster, f.Local = word(false), word(true)
	return f
}

// pool adds a pool of endpoints and returns its size. There is at least one.
func (c *compiler) pool(p *servicePort, local bool) uint32 {
	at := Key{Set: ServiceEndpoints, Addr: c.vip, Proto: p.key.proto, Port: uint16(p.Port), Pool: poolOf(local)}
	if p.timeout > 0 {
		at.Set = StickyPicks
	}
	now := findPool(c.pools[c.begun:], at, 0)
	if now == nil {
		var before *pool
		if c.before != nil {
			before = findPool(c.before.pools, at, len(c.pools))
		}
		want := p.pools.of(local)
		now = before.then(at, want[:min(len(want), maxEndpoints)])
		c.pools = append(c.pools, now)
	}
	return sizeOf(len(now.placed))
}

// externals adds what is reachable from outside: node port, external IPs and
// load balancer addresses.
func (c *compiler) externals(p *servicePort) {
	onlyLocal := c.svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
	masquerade := Value{Front: Front{Do: actionMasquerade}}
	to := func(from origin) Front {
		var f Front
		if onlyLocal {
			f = c.apart(p, from)
		} else {
			f = c.lead(p, from, false)
		}
		if !p.pools.any {
			return p.nowhere()
		}
		return f
	}
	if onlyLocal && p.pools.any {
		masquerade.Do = actionMasqueradeLocal
	}
	port := uint16(p.Port)
	for _, ip := range p.external {
		at := frontend{ip, port}
		c.front(p, at, to(byIP))
		c.add(at.key(p, MasqueradeIPs), masquerade)
	}
	for _, ip := range p.balancer {
		at := frontend{ip, port}
		if c.relayed(p) {
			c.hand(p, at, onlyLocal)
			continue
		}
		c.front(p, at, c.guarded(p, p.name(c), to(byIP)))
		c.add(at.key(p, MasqueradeIPs), masquerade)
	}
	if p.NodePort != 0 {
		at := frontend{port: uint16(p.NodePort)}
		c.front(p, at, to(byPort))
		c.add(at.key(p, MasqueradePorts), masquerade)
	}
}

// guarded puts the load balancer's source ranges before what is done with a frontend that belongs to a port of that name.
func (c *compiler) guarded(p *servicePort, name netip.AddrPort, f Front) Front {
	ranges, all := c.sourceRanges()
	if all {
		return f
	}
	w := way{what: guard}
	c.use(w)
	fromNode := false
	for _, r := range ranges {
		fromNode = fromNode || slices.ContainsFunc(c.node.Addrs, r.Contains)
	}
	if fromNode {
		// The load balancer's address may have been added to this node. Then
		// connections from here to it have that address as their source as well.
		for _, ip := range p.balancer {
			ranges = append(ranges, netip.PrefixFrom(ip, ip.BitLen()))
		}
	}
	for _, r := range distinct(ranges) {
		c.add(Key{Set: Sources, Proto: p.key.proto, Addr: name.Addr(), Port: name.Port(), Range: r}, Value{})
	}
	f.Guarded, f.Do = f.Do, w.number(0)
	return f
}

// distinct leaves out what is within other ranges: the kernel refuses that.
func distinct(ranges []netip.Prefix) []netip.Prefix {
	ranges = slices.SortedFunc(slices.Values(ranges), func(a, b netip.Prefix) int { return a.Bits() - b.Bits() })
	var kept []netip.Prefix
	for _, r := range ranges {
		if !slices.ContainsFunc(kept, func(k netip.Prefix) bool { return k.Contains(r.Addr()) }) {
			kept = append(kept, r)
		}
	}
	return kept
}

// sourceRanges returns the family's ranges; all says that there is no limit. One that
// cannot be read lets nobody in, and is a limit.
func (c *compiler) sourceRanges() (ranges []netip.Prefix, all bool) {
	all = true
	for _, s := range c.saidRanges() {
		p, err := netip.ParsePrefix(strings.TrimSpace(s))
		switch {
		case err != nil:
			all = false
		case familyOf(p.Addr()) != c.family:
		case p.Bits() == 0:
			return nil, true
		default:
			all = false
			ranges = append(ranges, p.Masked())
		}
	}
	return ranges, all
}

// saidRanges are as they stand in the field, or, if it is empty, in the annotation from before it.
func (c *compiler) saidRanges() []string {
	if list := c.svc.Spec.LoadBalancerSourceRanges; len(list) > 0 {
		return list
	}
	said := strings.TrimSpace(c.svc.Annotations[corev1.AnnotationLoadBalancerSourceRangesKey])
	if said == "" {
		return nil
	}
	return strings.Split(said, ",")
}

// affinity is for how many seconds clients stay with their endpoint; 0: they do not.
func (c *compiler) affinity() uint32 {
	if c.svc.Spec.SessionAffinity != corev1.ServiceAffinityClientIP {
		return 0
	}
	seconds := int32(corev1.DefaultClientIPServiceAffinitySeconds)
	if cfg := c.svc.Spec.SessionAffinityConfig; cfg != nil && cfg.ClientIP != nil && cfg.ClientIP.TimeoutSeconds != nil {
		seconds = *cfg.ClientIP.TimeoutSeconds
	}
	return uint32(min(max(seconds, 1), timeoutLimit))
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
		frag.elems = append(frag.elems, Key{Set: Hairpin, Addr: ip}.elem(f, Value{}))
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
	frag.elems = append(frag.elems, at.elem(f, to), masquerade.elem(f, Value{Front: Front{Do: actionMasqueradeLocal}}))
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
