package proxy

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/podnet/nft"
	"github.com/kemudi/kemudi/internal/podnet/nft/table"
)

// Scheduler says to which endpoint of a service port the next connection goes.
type Scheduler uint8

// The schedulers. With session affinity they say where a client's first connection goes; that is
// drawn where others are in turn.
const (
	AtRandom      Scheduler = iota
	InTurn                  // one after another, for all ways to the port together
	BySource                // always the same for a client's address
	ByDestination           // always the same for the address that is connected to
	Least                   // to the one with the fewest connections that are open, of which there are several in turn
)

// ordered says that pools have chains of their own, by which their endpoints are in turn.
func (s Scheduler) ordered() bool { return s == InTurn || s == Least }

// schedulers are those that the kernel's IPVS has, as far as kube-proxy takes them. It gives all
// endpoints one weight, so that the shortest expected delay is where the fewest connections are, and so is who is idle.
var schedulers = map[string]Scheduler{
	"": InTurn, "rr": InTurn, "wrr": InTurn, "sh": BySource, "mh": BySource, "dh": ByDestination,
	"lc": Least, "wlc": Least, "sed": Least, "nq": Least, "lblc": ByDestination, "lblcr": ByDestination,
}

// SchedulerOf is the scheduler of IPVS's name, or the one that is nearest to it where connections
// would have to be counted (exact is false then).
func SchedulerOf(name string) (s Scheduler, exact bool, err error) {
	s, ok := schedulers[name]
	if !ok {
		return 0, false, fmt.Errorf("%q is none of %s", name, strings.Join(slices.Sorted(maps.Keys(schedulers))[1:], ", "))
	}
	return s, !slices.Contains([]string{"lblc", "lblcr"}, name), nil
}

// draw puts a place below size into a register: the scheduler's. Where that may be empty, further
// tries have other places.
type draw struct {
	by  Scheduler
	try uint32
}

// seed is where hashes begin, so that tries differ.
func (d draw) seed() uint32 { return 0x6b656d75 + d.try }

func (d draw) text(f nft.Family, size uint32) string {
	switch d.by {
	case BySource:
		return fmt.Sprintf("jhash %s saddr mod %d seed 0x%x", f, size, d.seed())
	case ByDestination:
		return fmt.Sprintf("jhash %s daddr mod %d seed 0x%x", f, size, d.seed())
	}
	return fmt.Sprintf("numgen random mod %d", size)
}

// lower uses the registers of an endpoint, which is not known yet.
func (d draw) lower(f nft.Family, size uint32) []nft.Expr {
	r := registers(f)
	hash := nft.Hash{From: r.to, Len: uint32(addrRegs(f)) * 4, To: r.index, Mod: size, Seed: d.seed()}
	switch d.by {
	case BySource:
		return []nft.Expr{nft.SourceAddr(f, r.to), hash.Expr()}
	case ByDestination:
		return []nft.Expr{nft.DestinationAddr(f, r.to), hash.Expr()}
	}
	return []nft.Expr{nft.Random(r.index, size)}
}

// inTurn sends connections to one endpoint after another.
type inTurn struct{ to []netip.AddrPort }

func (s inTurn) Text(nft.Family) string {
	all := make([]string, len(s.to))
	for i, ep := range s.to {
		all[i] = fmt.Sprintf("%d : %s", i, endpointText(ep))
	}
	return fmt.Sprintf("dnat to numgen inc mod %d map { %s }", len(s.to), strings.Join(all, ", "))
}

func (s inTurn) Lower(t nft.Table, b *nft.Batch) []nft.Expr {
	elems := make([]nft.Elem, len(s.to))
	for i, ep := range s.to {
		elems[i] = nft.Elem{Key: nft.Key(nil).Integer(uint32(i)), Data: nft.Key(nil).Addr(ep.Addr()).Port(ep.Port())}
	}
	set := b.AnonymousSet(t, nft.Set{Key: []nft.Field{nft.Integer}, Data: []nft.Field{nft.AddrOf(t.Family), nft.Port}}, elems)
	return []nft.Expr{nft.InTurn(nft.R0, uint32(len(s.to))), nft.MapTo(set, nft.R0, nft.R0), nft.DNAT(t.Family, nft.R0, nft.R0+addrRegs(t.Family))}
}

// turn names the pool of a port whose endpoints are in turn: it has a chain of its own, because
// whose turn it is, a rule knows.
type turn struct {
	service types.NamespacedName
	port    netip.AddrPort // of the cluster IP
	proto   Proto
	local   bool
}

// turns are the numbers of the chains of one table.
type turns struct {
	of   map[turn]uint32
	last uint32
}

// number is that of the pool, always the same while there is the pool.
func (t *turns) number(of turn) uint32 {
	if n, ok := t.of[of]; ok {
		return n
	}
	if t.of == nil {
		t.of = map[turn]uint32{}
	}
	t.last = t.last%timeoutLimit + 1 // so many later, none of the first is left
	t.of[of] = t.last
	return t.last
}

// inTurn adds the chain of a pool, which is not empty, and returns its action.
func (c *compiler) inTurn(p *servicePort, local bool) uint32 {
	of := turn{types.NamespacedName{Namespace: c.svc.Namespace, Name: c.svc.Name}, p.name(c), p.key.proto, local}
	n, w := c.numbers.number(of), way{what: rotate}
	if _, done := c.fragment.turns[of]; !done {
		to := p.pools.of(local)
		if c.fragment.turns == nil {
			c.fragment.turns, c.fragment.counted = map[turn]table.Chain{}, map[counted]bool{}
		}
		if c.cfg.Scheduler == Least {
			for _, at := range to {
				c.fragment.counted[counted{p.key.proto, at}] = true
			}
			to = least(to, p.key.proto, c.counts)
		}
		c.fragment.turns[of] = table.Chain{Name: w.chain(n), Rules: []table.Rule{{inTurn{to[:min(len(to), maxEndpoints)]}}, {verdict{nft.Drop, ""}}}}
		for _, s := range w.maps() {
			c.add(Key{Set: s, Index: w.number(n)}, Value{Verdict: w.verdict(n)})
		}
	}
	return w.number(n)
}

// replaceTurns puts the chains of a fragment in the place of those of its last one.
func (r *rules) replaceTurns(before, now *fragment) {
	for of, c := range before.turns {
		if _, stays := now.turns[of]; !stays {
			r.DelChain(c.Name)
			delete(r.turns.of, of)
		}
	}
	for _, c := range now.turns {
		r.SetChain(c)
	}
}
