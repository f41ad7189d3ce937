package netpolicy

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/kemudi/kemudi/internal/podnet/nft/table"
)

// profile is what pods of this node may do in one direction that the same rules select: a
// chain of its own.
type profile struct {
	text    string
	way     direction
	number  uint32
	clauses []clause
	users   int // pods
}

// clause lets through connections with peers to ports.
type clause struct {
	peers *peers      // nil: all
	ports []portRange // nil: all, or those that the peers come with
	text  string      // says all there is to it
}

func newClause(p *peers, ports []portRange) clause {
	c := clause{peers: p, ports: ports, text: "all"}
	if p != nil {
		c.text = p.text
	}
	for _, r := range ports {
		c.text += "|" + r.String()
	}
	return c
}

// complete finds out what a rule lets through whichever pod it is for. A port with a name is
// that of the pod which is connected to.
func (r *rule) complete(d direction) {
	if d == ingress {
		if r.byPod = len(r.ports.names) > 0; !r.byPod {
			r.clauses = r.numbered(r.ports.ranges)
		}
		return
	}
	r.clauses = r.numbered(r.ports.ranges)
	for _, name := range r.ports.names {
		selections := r.selections
		if r.anybody {
			every := everyPod()
			selections = []*peers{{pods: &every}}
		}
		for _, s := range selections {
			r.clauses = append(r.clauses, newClause(described(peers{pods: s.pods, port: name}), nil))
		}
	}
}

// numbered are the clauses of a rule for ports by their numbers.
func (r *rule) numbered(numbers []portRange) (list []clause) {
	if !r.ports.all && len(numbers) == 0 {
		return nil
	}
	numbers = ordered(numbers)
	if r.anybody {
		list = append(list, newClause(nil, numbers))
	}
	for _, s := range r.selections {
		list = append(list, newClause(s, numbers))
	}
	if r.blocks != nil {
		list = append(list, newClause(r.blocks, numbers))
	}
	return list
}

// forPod are the clauses of a rule for a pod that can be connected to.
func (r *rule) forPod(p *pod) []clause {
	if !r.byPod {
		return r.clauses
	}
	numbers := slices.Clone(r.ports.ranges)
	for _, name := range r.ports.names {
		if n, ok := p.facts.ports[name]; ok {
			numbers = append(numbers, portRange{name.proto, n, n})
		}
	}
	return r.numbered(numbers)
}

// chain is the name of the chain.
func (pr *profile) chain() string { return pr.way.short() + "-" + strconv.Itoa(int(pr.number)) }

// settle brings the profiles of the pods that were touched up to date.
func (m *Model) settle() {
	var left []*profile
	// In a fixed order: the outcome must not depend on that of a map.
	for _, p := range slices.SortedFunc(maps.Keys(m.dirty), func(a, b *pod) int { return strings.Compare(a.key.String(), b.key.String()) }) {
		for _, d := range directions {
			was := p.profiles[d]
			p.profiles[d] = m.profileOf(p, d)
			if p.profiles[d] != nil {
				m.take(p.profiles[d])
			}
			if was != nil {
				left = append(left, was)
			}
		}
		m.retarget(p)
	}
	clear(m.dirty)
	m.fill()
	// Last, so that what another pod needs as well is not made anew.
	for _, pr := range left {
		m.leaveProfile(pr)
	}
	for p := range m.gone {
		delete(m.pods, p.key)
		delete(m.space(p.key.Namespace).pods, p)
		m.tidy(p.key.Namespace)
	}
	clear(m.gone)
}

// profileOf decides what a pod of this node may do in a direction; nil: all.
func (m *Model) profileOf(p *pod, d direction) *profile {
	if !p.facts.local || len(p.addrs) == 0 {
		return nil
	}
	isolated := false
	var found []*clause
	for _, np := range m.space(p.key.Namespace).policies {
		if !np.isolates[d] || !np.selects.Matches(p.facts.labels) {
			continue
		}
		isolated = true
		for i := range np.rules[d] {
			clauses := np.rules[d][i].forPod(p)
			for j := range clauses {
				if c := &clauses[j]; c.peers != nil || c.ports != nil {
					found = append(found, c)
					continue
				}
				return nil // all is let through
			}
		}
	}
	if !isolated {
		return nil
	}
	slices.SortFunc(found, func(a, b *clause) int { return strings.Compare(a.text, b.text) })
	found = slices.CompactFunc(found, func(a, b *clause) bool { return a.text == b.text })
	var text strings.Builder
	text.WriteString(d.short())
	for _, c := range found {
		text.WriteString("\n" + c.text)
	}
	if pr := m.profiles[text.String()]; pr != nil {
		return pr
	}
	m.lastProfile++
	pr := &profile{text: text.String(), way: d, number: uint32(m.lastProfile)}
	for _, c := range found {
		pr.clauses = append(pr.clauses, *c)
	}
	return pr
}

// ordered puts ports in an order, each once; nil stays nil.
func ordered(list []portRange) []portRange {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b portRange) int {
		return cmp.Or(cmp.Compare(a.proto, b.proto), cmp.Compare(a.first, b.first), cmp.Compare(a.last, b.last))
	})
	return slices.Compact(list)
}

// take counts a pod among those of a profile, which is made when it is the first.
func (m *Model) take(pr *profile) {
	if pr.users++; pr.users > 1 {
		return
	}
	m.profiles[pr.text] = pr
	for i := range pr.clauses {
		if c := &pr.clauses[i]; c.peers != nil {
			c.peers = m.shared(c.peers)
			m.use(c.peers)
		}
	}
	for i := range families {
		m.tables[i].SetChain(profileChain(pr, i))
		m.tables[i].Claim(nil, m.fixed[i].jump(pr))
	}
}

// leaveProfile is the opposite of take.
func (m *Model) leaveProfile(pr *profile) {
	if pr.users--; pr.users > 0 {
		return
	}
	delete(m.profiles, pr.text)
	for i := range families {
		m.tables[i].DelChain(pr.chain())
		m.tables[i].Release(nil, m.fixed[i].jump(pr).ID)
	}
	for _, c := range pr.clauses {
		if c.peers != nil {
			m.drop(c.peers)
		}
	}
}

// retarget has the rules say what a pod may do by its addresses.
func (m *Model) retarget(p *pod) {
	if p.profiles == p.claimed && slices.Equal(p.addrs, p.targets) {
		return
	}
	m.eachTarget(p, func(t *table.Model, e table.Elem) { t.Release(p, e.ID) })
	p.targets, p.claimed = p.addrs, p.profiles
	m.eachTarget(p, func(t *table.Model, e table.Elem) { t.Claim(p, e) })
	if p.isolated() {
		m.recheck(p.addrs...)
	}
}

// eachTarget calls fn with the elements that say what a pod may do.
func (m *Model) eachTarget(p *pod, fn func(t *table.Model, e table.Elem)) {
	if !p.isolated() {
		return
	}
	for _, a := range p.targets {
		i := familyOf(a)
		fn(m.tables[i], table.Elem{ID: m.fixed[i].selfID(a)})
		for _, d := range directions {
			if p.claimed[d] != nil {
				fn(m.tables[i], m.fixed[i].target(a, p.claimed[d]))
			}
		}
	}
}

// Flow is a connection that the node forwards, as it looks between DNAT and SNAT.
type Flow struct {
	Src, Dst netip.Addr
	Proto    uint8
	Port     uint16 // of the destination; 0 where the protocol has none
}

// Allows decides about a connection as the rules do that were committed last.
func (m *Model) Allows(f Flow) bool {
	if f.Src == f.Dst {
		return true
	}
	if pr := m.targetAt(f.Src, egress); pr != nil && !m.passes(pr, f.Dst, f) {
		return false
	}
	pr := m.targetAt(f.Dst, ingress)
	return pr == nil || m.passes(pr, f.Src, f)
}

// targetAt is the profile that the rules have for an address of this node.
func (m *Model) targetAt(a netip.Addr, d direction) (found *profile) {
	var oldest *pod
	for p := range m.at[a] {
		if p.claimed[d] != nil && (oldest == nil || p.Before(oldest)) {
			oldest, found = p, p.claimed[d]
		}
	}
	return found
}

// passes reports whether a profile lets through a connection with a peer.
func (m *Model) passes(pr *profile, peer netip.Addr, f Flow) bool {
	return slices.ContainsFunc(pr.clauses, func(c clause) bool {
		if c.ports != nil && !slices.ContainsFunc(c.ports, func(r portRange) bool {
			return uint8(r.proto) == f.Proto && r.first <= f.Port && f.Port <= r.last
		}) {
			return false
		}
		if c.peers == nil {
			return true
		}
		if c.peers.pods == nil {
			return c.peers.has(peer)
		}
		for p := range m.at[peer] {
			if port, in := p.in[c.peers]; in && (!c.peers.named() || uint8(c.peers.port.proto) == f.Proto && port == f.Port) {
				return true
			}
		}
		return false
	})
}
