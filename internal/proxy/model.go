package proxy

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/podnet/nft"
	"github.com/kemudi/kemudi/internal/podnet/nft/table"
	"github.com/kemudi/kemudi/internal/proxy/userspace"
)

// Model turns the cluster's objects into rules, incrementally: objects are set
// and deleted as they change, and Commit compiles what that has touched. It is
// pure: no I/O, no clock. It belongs to one goroutine.
type Model struct {
	cfg  Config
	node NodeFacts
	// rebase says that chains that are always there may have changed.
	rebase bool
	// leaving says that load balancers should look for another node.
	leaving bool
	taken   int64 // the revision of the newest slice that was set
	served  int64 // that of the newest Service
	owners  map[ownerKey]*owner
	dirty   map[*owner]bool
	health  map[types.NamespacedName]Health
	tables  [len(families)]*rules
	away    [len(families)]away      // of all fragments
	counts  map[counted]int          // of connections, by endpoint
	ports   map[userspace.Key]uint16 // at which this process takes connections; nil: it takes none
}

// ownerKey names what elements and chains come from: a service, or the host
// ports of a pod.
type ownerKey struct {
	pod bool
	types.NamespacedName
}

// owner is the state of one service or pod.
type owner struct {
	key    ownerKey
	svc    *corev1.Service
	slices map[string]*part
	eps    [len(families)]endpoints
	pod    *corev1.Pod
	since  time.Time // when the object was made: of two that claim an element, the older one gets it
	frags  [len(families)]*fragment
}

// NewModel returns a model of an empty cluster.
func NewModel(cfg Config) *Model {
	m := &Model{
		cfg: cfg, node: NodeFacts{Name: cfg.NodeName}, owners: map[ownerKey]*owner{}, dirty: map[*owner]bool{},
		health: map[types.NamespacedName]Health{},
	}
	if cfg.Userspace {
		m.ports = map[userspace.Key]uint16{}
	}
	for i := range families {
		m.tables[i] = newRules(&m.cfg, &m.node, i)
	}
	return m
}

func serviceKey(namespace, name string) ownerKey {
	return ownerKey{false, types.NamespacedName{Namespace: namespace, Name: name}}
}

func podKey(namespace, name string) ownerKey {
	return ownerKey{true, types.NamespacedName{Namespace: namespace, Name: name}}
}

// SetService takes in a service that is new or changed.
func (m *Model) SetService(s *corev1.Service) {
	o := m.owner(serviceKey(s.Namespace, s.Name))
	o.svc, o.since = s, s.CreationTimestamp.Time
	m.dirty[o] = true
}

// DeleteService forgets a service.
func (m *Model) DeleteService(namespace, name string) {
	if o := m.owners[serviceKey(namespace, name)]; o != nil {
		o.svc = nil
		m.dirty[o] = true
	}
}

// SetSlice takes in a slice that is new or changed. One that moves to another
// service must be deleted from the old one first.
func (m *Model) SetSlice(s *discoveryv1.EndpointSlice) {
	m.setSlice(s, s)
}

// DeleteSlice forgets a slice; s is its last state.
func (m *Model) DeleteSlice(s *discoveryv1.EndpointSlice) {
	m.setSlice(s, nil)
}

func (m *Model) setSlice(s, now *discoveryv1.EndpointSlice) {
	service := s.Labels[discoveryv1.LabelServiceName]
	if service == "" {
		return
	}
	o := m.owner(serviceKey(s.Namespace, service))
	before, after := o.slices[s.Name], (*part)(nil)
	delete(o.slices, s.Name)
	if now != nil && !foreign(s.Labels) {
		after = read(s, m.cfg.NodeName)
		if o.slices == nil {
			o.slices = map[string]*part{}
		}
		o.slices[s.Name] = after
	}
	for i, f := range families {
		o.eps[i].replace(before.in(f), after.in(f))
	}
	m.dirty[o] = true
}

// SetPod takes in a pod of this node that is new or changed.
func (m *Model) SetPod(p *corev1.Pod) {
	key := podKey(p.Namespace, p.Name)
	if m.owners[key] == nil && !hasHostPorts(p) {
		return
	}
	o := m.owner(key)
	o.pod, o.since = p, p.CreationTimestamp.Time
	m.dirty[o] = true
}

// DeletePod forgets a pod.
func (m *Model) DeletePod(namespace, name string) {
	if o := m.owners[podKey(namespace, name)]; o != nil {
		o.pod = nil
		m.dirty[o] = true
	}
}

func hasHostPorts(p *corev1.Pod) bool {
	has := func(c corev1.Container) bool {
		return slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.HostPort != 0 })
	}
	return slices.ContainsFunc(p.Spec.Containers, has) || slices.ContainsFunc(p.Spec.InitContainers, has)
}

// SetNode takes in this node.
func (m *Model) SetNode(n *corev1.Node) {
	m.leaving = core.NodeLeaves(n)
	facts := NodeFacts{
		Name: m.cfg.NodeName, Zone: n.Labels[corev1.LabelTopologyZone], Region: n.Labels[corev1.LabelTopologyRegion],
		Primary: primary(n.Status.Addresses),
	}
	for _, a := range n.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil {
			facts.Addrs = append(facts.Addrs, ip)
		}
	}
	if facts.Zone == m.node.Zone && facts.Region == m.node.Region && slices.Equal(facts.Addrs, m.node.Addrs) && slices.Equal(facts.Primary, m.node.Primary) {
		return
	}
	m.node, m.rebase = facts, true
	for _, o := range m.owners {
		m.dirty[o] = true
	}
}

// primary are the first address of each family, those inside the cluster before
// those outside. A loopback address is nobody's to reach.
func primary(addresses []corev1.NodeAddress) (found []netip.Prefix) {
	for _, kind := range []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP} {
		for _, a := range addresses {
			ip, err := netip.ParseAddr(a.Address)
			if err != nil || a.Type != kind || ip.IsLoopback() ||
				slices.ContainsFunc(found, func(p netip.Prefix) bool { return familyOf(p.Addr()) == familyOf(ip) }) {
				continue
			}
			found = append(found, netip.PrefixFrom(ip, ip.BitLen()))
		}
	}
	return found
}

func (m *Model) owner(key ownerKey) *owner {
	o := m.owners[key]
	if o == nil {
		o = &owner{key: key}
		m.owners[key] = o
	}
	return o
}

// Step is what Commit asks for.
type Step struct {
	Tables [len(families)]table.Changes
	// Flows are the UDP ports whose connections must be looked through.
	Flows []flow
}

// Empty says that there is nothing to do.
func (s *Step) Empty() bool {
	return len(s.Flows) == 0 && !slices.ContainsFunc(s.Tables[:], func(c table.Changes) bool { return !c.Empty() })
}

// Dirty says whether Commit may have something to do.
func (m *Model) Dirty() bool { return len(m.dirty) > 0 || m.rebase }

// Anew says that Full is asked for after the next Commit: what Commit returns is of no use then.
func (m *Model) Anew() {
	for _, r := range m.tables {
		r.Anew()
	}
}

// Commit compiles what has been touched since the last call, and returns what is
// to be changed. The caller brings that to the kernel, or, if it cannot, later
// asks for everything with Full.
func (m *Model) Commit() *Step {
	if m.rebase {
		for _, r := range m.tables {
			r.base(&m.node)
		}
		m.rebase = false
	}
	step := &Step{}
	// In a fixed order: the outcome must not depend on that of a map.
	dirty := slices.SortedFunc(maps.Keys(m.dirty), func(a, b *owner) int {
		return cmp.Or(strings.Compare(a.key.Namespace, b.key.Namespace), strings.Compare(a.key.Name, b.key.Name))
	})
	for _, o := range dirty {
		for i, f := range families {
			now := m.compile(o, f, o.frags[i])
			step.Flows = append(step.Flows, staleFlows(o.frags[i], now)...)
			m.tables[i].replace(o, o.frags[i], now)
			m.away[i].replace(o.frags[i], now)
			o.frags[i] = now
		}
		m.noteHealth(o)
		if o.svc == nil && o.pod == nil && len(o.slices) == 0 {
			delete(m.owners, o.key)
		}
	}
	clear(m.dirty)
	for i, r := range m.tables {
		step.Tables[i] = r.changes()
	}
	return step
}

func (m *Model) compile(o *owner, f nft.Family, before *fragment) *fragment {
	switch {
	case o.svc != nil:
		return compileService(scene{&m.cfg, &m.node, f, &m.tables[indexOf(f)].turns, m.ports, m.counts}, o.svc, o.eps[indexOf(f)], before)
	case o.pod != nil:
		return compilePod(o.pod, f)
	}
	return nil
}

// Full is everything the tables are to hold, and all UDP flows. Nothing must be
// dirty.
func (m *Model) Full() *Step {
	step := &Step{}
	for i, r := range m.tables {
		step.Tables[i] = r.Full()
	}
	step.Flows = m.flows()
	return step
}

// flows are all UDP ports.
func (m *Model) flows() []flow {
	var all []flow
	for _, o := range m.owners {
		for _, frag := range o.frags {
			if frag != nil {
				all = append(all, frag.flows...)
			}
		}
	}
	return all
}

// replace counts a fragment in the place of another; both may be nil.
func (a *away) replace(before, now *fragment) {
	if before != nil {
		a.internal, a.external = a.internal-before.away.internal, a.external-before.away.external
	}
	if now != nil {
		a.internal, a.external = a.internal+now.away.internal, a.external+now.away.external
	}
}

// staleFlows returns the ports from whose flows some may have to be ended: an
// endpoint has gone, or the port is new or has its first endpoint (what was sent
// before went astray), or the port has gone.
func staleFlows(before, now *fragment) []flow {
	if (before == nil || len(before.flows) == 0) && (now == nil || len(now.flows) == 0) {
		return nil
	}
	type port struct {
		addr netip.Addr
		port uint16
	}
	old := map[port]flow{}
	if before != nil {
		for _, f := range before.flows {
			old[port{f.Addr, f.Port}] = f
		}
	}
	var stale []flow
	if now != nil {
		for _, f := range now.flows {
			p := port{f.Addr, f.Port}
			gone, _ := differ(old[p].Valid, f.Valid)
			if len(gone) > 0 || len(old[p].Valid) == 0 && len(f.Valid) > 0 {
				stale = append(stale, f)
			}
			delete(old, p)
		}
	}
	for _, f := range old {
		if len(f.Valid) > 0 {
			f.Valid = nil
			stale = append(stale, f)
		}
	}
	return stale
}

// Health is the state of one service's health check port.
type Health struct {
	types.NamespacedName
	Port    uint16
	Local   int // ready endpoints on this node
	Service *corev1.Service
}

// Health returns the health check ports that are to be served, by service. The
// map is the model's own, and valid until the next Commit.
func (m *Model) Health() map[types.NamespacedName]Health { return m.health }

// HealthAddrs are the addresses at which they are to be served, which are those of node ports.
func (m *Model) HealthAddrs() []string {
	only, everywhere := m.cfg.nodePortRanges(&m.node)
	if everywhere {
		return []string{""}
	}
	var at []string
	for _, a := range append([]netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}, m.node.Addrs...) {
		if slices.ContainsFunc(only, func(p netip.Prefix) bool { return p.Contains(a) }) && !slices.Contains(at, a.String()) {
			at = append(at, a.String())
		}
	}
	return at
}

func (m *Model) noteHealth(o *owner) {
	if o.key.pod {
		return
	}
	name, s := o.key.NamespacedName, o.svc
	if s == nil || s.Spec.HealthCheckNodePort == 0 || !proxied(s) || s.Spec.Type != corev1.ServiceTypeLoadBalancer ||
		s.Spec.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyLocal {
		delete(m.health, name)
		return
	}
	h := Health{NamespacedName: name, Port: uint16(s.Spec.HealthCheckNodePort), Service: s}
	for _, frag := range o.frags {
		if frag != nil {
			h.Local = max(h.Local, len(frag.localReady))
		}
	}
	m.health[name] = h
}
