package netpolicy

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/kemudi/kemudi/internal/podnet/nft"
	"github.com/kemudi/kemudi/internal/podnet/nft/table"
)

// peers are addresses that rules name: those of the pods of a selection, those of its
// pods that have a port of a name, each with the number of the port, or those of blocks. All rules that
// name the same share one, in each family a set of the table.
type peers struct {
	text   string // says all there is to it
	pods   *selection
	port   portName // with a name: of the pods that have it
	blocks []block
	users  int // profiles
	member map[*pod]bool
	sets   [len(families)]*table.Set
}

// named reports whether the sets hold a protocol and port with each address.
func (s *peers) named() bool { return s.port.name != "" }

// has reports whether blocks have an address.
func (s *peers) has(a netip.Addr) bool {
	for _, r := range spans(s.blocks, a.Is4()) {
		if !a.Less(r.first) && !r.last.Less(a) {
			return true
		}
	}
	return false
}

// described returns the peers with the text that says all there is to them.
func described(s peers) *peers {
	switch {
	case s.pods == nil:
		words := make([]string, len(s.blocks))
		for i, b := range s.blocks {
			words[i] = b.String()
		}
		s.text = "addresses " + strings.Join(words, ", ")
	case s.named():
		s.text = "port " + s.port.name + " (" + s.port.proto.String() + ") of " + s.pods.String()
	default:
		s.text = s.pods.String()
	}
	return &s
}

// shared returns the peers that all who name the same share: s, if nobody has named them yet.
func (m *Model) shared(s *peers) *peers {
	if other := m.peers[s.text]; other != nil {
		return other
	}
	s.member = map[*pod]bool{}
	m.peers[s.text] = s
	return s
}

// use makes the sets of peers that a profile has begun to name.
func (m *Model) use(s *peers) {
	if s.users++; s.users > 1 {
		return
	}
	m.lastSet++
	for i, f := range families {
		set := &table.Set{Set: nft.Set{Key: []nft.Field{nft.AddrOf(f)}}}
		switch {
		case s.pods == nil:
			set.Name, set.Interval = "blocks-"+strconv.Itoa(m.lastSet), true
		case s.named():
			set.Name, set.Key = "named-"+strconv.Itoa(m.lastSet), append(set.Key, nft.Proto, nft.Port)
		default:
			set.Name = "pods-" + strconv.Itoa(m.lastSet)
		}
		s.sets[i] = set
		m.tables[i].AddSet(set)
	}
	if s.pods == nil {
		m.eachSpan(s, func(i int, e table.Elem) { m.tables[i].Claim(nil, e) })
		return
	}
	m.scope(s).add(s)
	m.fresh = append(m.fresh, s)
}

// scope is where the peers of a selection are looked up: with its namespace, or with no one.
func (m *Model) scope(s *peers) *directory {
	if s.pods.namespaces == nil {
		return &m.space(s.pods.namespace).peers
	}
	return &m.anywhere
}

// fill puts pods into the sets that have come into use, in one walk for all of them.
func (m *Model) fill() {
	if len(m.fresh) == 0 {
		return
	}
	var everywhere directory
	within := map[string]*directory{}
	for _, s := range m.fresh {
		d := &everywhere
		if s.pods.namespaces == nil {
			if within[s.pods.namespace] == nil {
				within[s.pods.namespace] = &directory{}
			}
			d = within[s.pods.namespace]
		}
		d.add(s)
	}
	m.fresh = nil
	for name, d := range within {
		for p := range m.space(name).pods {
			d.each(p.facts.labels, func(s *peers) { m.admit(s, p) })
		}
	}
	if everywhere.empty() {
		return
	}
	for _, p := range m.pods {
		everywhere.each(p.facts.labels, func(s *peers) { m.admit(s, p) })
	}
}

// drop takes away the sets of peers that no profile names any more.
func (m *Model) drop(s *peers) {
	if s.users--; s.users > 0 {
		return
	}
	delete(m.peers, s.text)
	if s.pods == nil {
		m.eachSpan(s, func(i int, e table.Elem) { m.tables[i].Release(nil, e.ID) })
	} else {
		m.scope(s).remove(s)
		m.tidy(s.pods.namespace)
	}
	for p := range s.member {
		m.withdraw(s, p)
		delete(p.in, s)
	}
	for i := range families {
		m.tables[i].DelSet(s.sets[i])
	}
}

func (m *Model) eachSpan(s *peers, fn func(i int, e table.Elem)) {
	for i, f := range families {
		for _, r := range spans(s.blocks, f == nft.IPv4) {
			fn(i, table.Elem{ID: table.ID{Set: s.sets[i], Key: table.Range(nft.Key(nil).Addr(r.first), nft.Key(nil).Addr(r.last))}})
		}
	}
}

// admit puts a pod among peers if it is one of them.
func (m *Model) admit(s *peers, p *pod) {
	if len(p.addrs) == 0 || !s.pods.pods.Matches(p.facts.labels) {
		return
	}
	if ns := s.pods.namespaces; ns != nil && !ns.Matches(m.space(p.key.Namespace).labels) {
		return
	}
	port, has := p.facts.ports[s.port]
	if s.named() && !has {
		return
	}
	s.member[p], p.in[s] = true, port
	for _, a := range p.addrs {
		m.tables[familyOf(a)].Claim(p, table.Elem{ID: s.id(a, port)})
	}
}

// withdraw takes a pod out of peers; that it is in is forgotten by the caller.
func (m *Model) withdraw(s *peers, p *pod) {
	delete(s.member, p)
	for _, a := range p.addrs {
		m.tables[familyOf(a)].Release(p, s.id(a, p.in[s]))
	}
}

// id is the element of a pod's address, with the number that its port has.
func (s *peers) id(a netip.Addr, port uint16) table.ID {
	key := nft.Key(nil).Addr(a)
	if s.named() {
		key = key.Proto(uint8(s.port.proto)).Port(port)
	}
	return table.ID{Set: s.sets[familyOf(a)], Key: string(key)}
}
