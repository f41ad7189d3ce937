package netpolicy

import (
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/kemudi/kemudi/internal/podnet/nft"
	"github.com/kemudi/kemudi/internal/podnet/nft/table"
)

// The chains that are always there.
const (
	chainForward = "forward"
	chainKnown   = "known"
	chainJudge   = "judge"
	chainStray   = "stray"
)

// priorityFilter is that of the hook (NF_IP_PRI_FILTER).
const priorityFilter = 0

// fixedSets are the sets of one family that are always there.
type fixedSets struct {
	family   nft.Family
	targets  [len(directions)]*table.Set // address of a pod of this node -> number of its profile
	profiles *table.Set                  // number -> its chain
	self     *table.Set                  // address . address, of the same pods
	rechecks *table.Set
}

func newFixedSets(f nft.Family) fixedSets {
	addr := nft.AddrOf(f)
	s := fixedSets{
		family:   f,
		profiles: &table.Set{Set: nft.Set{Name: "profiles", Key: []nft.Field{nft.Integer}, Data: []nft.Field{nft.Verdict}}},
		self:     &table.Set{Set: nft.Set{Name: "self", Key: []nft.Field{addr, addr}}},
		rechecks: &table.Set{Set: nft.Set{Name: "recheck", Key: []nft.Field{addr}}},
	}
	for _, d := range directions {
		s.targets[d] = &table.Set{Set: nft.Set{
			Name: "targets-" + d.short(), Key: []nft.Field{addr}, Data: []nft.Field{nft.Integer, nft.Integer}, // the first is unused: see profileOf
		}}
	}
	return s
}

// declare puts the sets and the chains that are always there into the table.
func (s *fixedSets) declare(t *table.Model) {
	for _, set := range []*table.Set{s.targets[ingress], s.targets[egress], s.profiles, s.self, s.rechecks} {
		t.AddSet(set)
	}
	for _, c := range []table.Chain{
		{Name: chainForward, Hook: &nft.Hook{Type: "filter", Num: unix.NF_INET_FORWARD, Priority: priorityFilter}, Rules: []table.Rule{
			{known{}, verdict{nft.Goto, chainKnown}},
			{verdict{nft.Goto, chainJudge}},
		}},
		{Name: chainKnown, Rules: []table.Rule{
			{reply{}, verdict{nft.Accept, ""}},
			{in{key: source, set: s.rechecks}, verdict{nft.Goto, chainJudge}},
			{in{key: destination, set: s.rechecks}, verdict{nft.Goto, chainJudge}},
		}},
		{Name: chainJudge, Rules: []table.Rule{
			{in{key: both, set: s.self}, verdict{nft.Accept, ""}},
			{profileJump{source, s.targets[egress], s.profiles}},
			{profileJump{destination, s.targets[ingress], s.profiles}},
		}},
		// What belongs to no connection that is known any more, such as the rest of one that has been
		// ended, would begin one in the other direction.
		{Name: chainStray, Rules: []table.Rule{{reset{}}}},
	} {
		t.SetChain(c)
	}
}

func (s *fixedSets) recheckID(a netip.Addr) table.ID {
	return table.ID{Set: s.rechecks, Key: string(nft.Key(nil).Addr(a))}
}

func (s *fixedSets) selfID(a netip.Addr) table.ID {
	return table.ID{Set: s.self, Key: string(nft.Key(nil).Addr(a).Addr(a))}
}

// target is the element that gives a pod's address its profile.
func (s *fixedSets) target(a netip.Addr, pr *profile) table.Elem {
	return table.Elem{
		ID:    table.ID{Set: s.targets[pr.way], Key: string(nft.Key(nil).Addr(a))},
		Value: string(nft.Key(nil).Integer(0).Integer(pr.number)),
	}
}

// jump is the element that leads to the chain of a profile.
func (s *fixedSets) jump(pr *profile) table.Elem {
	return table.Elem{ID: table.ID{Set: s.profiles, Key: string(nft.Key(nil).Integer(pr.number))}, Value: table.Jump(pr.chain())}
}

// profileChain is the chain of a profile in a family.
func profileChain(pr *profile, family int) table.Chain {
	// What goes out may be for a pod of this node as well, which is judged next.
	passes, peer := verdict{nft.Accept, ""}, source
	if pr.way == egress {
		passes, peer = verdict{nft.Return, ""}, destination
	}
	rules := []table.Rule{{stray{}, verdict{nft.Goto, chainStray}}}
	for _, c := range pr.clauses {
		var from table.Rule
		if s := c.peers; s != nil {
			if s.pods == nil && len(spans(s.blocks, families[family] == nft.IPv4)) == 0 {
				continue // all of the other family
			}
			key := peer
			key.port = s.named()
			from = table.Rule{in{key, s.sets[family], s.text}}
		}
		for _, ports := range portMatches(c.ports) {
			rules = append(rules, slices.Concat(from, ports, table.Rule{passes}))
		}
	}
	return table.Chain{Name: pr.chain(), Rules: append(rules, table.Rule{counter{}, verdict{nft.Drop, ""}})}
}

// portMatches are the statements that hold for the ports, each alternative a list: all single
// ports of a clause are one.
func portMatches(list []portRange) (out []table.Rule) {
	if list == nil {
		return []table.Rule{nil}
	}
	var single []portRange
	for _, r := range list {
		if r.first == r.last {
			single = append(single, r)
			continue
		}
		out = append(out, table.Rule{portIn{[]portRange{r}}})
	}
	if len(single) > 0 {
		out = append(out, table.Rule{portIn{single}})
	}
	return out
}
