package proxy

import (
	"fmt"
	"slices"

	"github.com/kemudi/kemudi/internal/podnet/nft"
	"github.com/kemudi/kemudi/internal/podnet/nft/table"
)

// way is a family of chains that services share: what is done with a connection
// once its frontend is known. A frontend says by a number, its action, which chain is
// next, so that a change of endpoints changes numbers and never a chain.
type way struct {
	what    what
	from    origin
	local   bool   // by the endpoints of this node
	timeout uint32 // of affinity, in seconds; for sticky and outside
}

// what a way does.
type what uint8

const (
	pick    what = iota + 1 // to one of the endpoints of the destination itself; in sizes
	lead                    // to one of those of the port that the frontend belongs to; in sizes
	note                    // choose one for the client, for affinity; in sizes
	sticky                  // to the one that the client had, else note
	outside                 // tell clients outside the cluster from others
	guard                   // check the source ranges
	rotate                  // to the endpoints of one port in turn; see turn
)

// origin is how a frontend is known.
type origin uint8

const (
	byIP   origin = iota // address, protocol and port
	byPort               // a port of this node
)

// Actions that are not the way of a service. Those of ways are made by number.
const (
	actionReject          = 0
	actionMasquerade      = 1
	actionMasqueradeLocal = 2
	actionDrop            = 1<<32 - 1
)

// number is the action of the way's chain for n: a size, or the timeout.
func (w way) number(n uint32) uint32 {
	kind := uint32(w.what)<<2 | uint32(w.from)<<1
	if w.local {
		kind |= 1
	}
	return kind<<24 | n
}

// timeoutLimit is what numbers have room for; it is above the longest timeout that
// Services may have.
const timeoutLimit = 1<<24 - 1

// wayOf is the way of an action, and its n.
func wayOf(action uint32) (w way, n uint32) {
	kind, n := action>>24, action&timeoutLimit
	w = way{what: what(kind >> 2), from: origin(kind >> 1 & 1), local: kind&1 == 1}
	if w.what == sticky || w.what == outside {
		w.timeout = n
	}
	return w, n
}

var names = [...]string{pick: "pick", lead: "to", note: "note", sticky: "sticky", outside: "external", guard: "firewall", rotate: "turn"}

// chain is the name of the way's chain for n.
func (w way) chain(n uint32) string {
	name := names[w.what]
	if w.what == pick || w.what == guard || w.what == rotate {
		if w.what == guard {
			return name
		}
		return fmt.Sprintf("%s-%d", name, n)
	}
	name += [...]string{byIP: "-ip", byPort: "-port"}[w.from]
	if w.local {
		name += "-local"
	}
	if n == 0 {
		return name
	}
	return fmt.Sprintf("%s-%d", name, n)
}

// actionText is an action as people read it.
func actionText(action uint32) string {
	switch action {
	case actionReject:
		return chainReject
	case actionDrop:
		return "drop"
	case actionMasquerade:
		return chainMasquerade
	case actionMasqueradeLocal:
		return chainMasqueradeLocal
	}
	w, n := wayOf(action)
	return w.chain(n)
}

// verdict is what the way's action leads to.
func (w way) verdict(n uint32) string {
	if w.what == note {
		return table.Jump(w.chain(n)) // it comes back
	}
	return table.Goto(w.chain(n))
}

// maps are the maps of actions that the way's are in.
func (w way) maps() []Set {
	switch w.what {
	case lead, rotate:
		return []Set{Actions, GuardedActions, PoolActions}
	case sticky, outside:
		return []Set{Actions, GuardedActions}
	case note:
		return []Set{NoteActions}
	}
	return []Set{Actions}
}

// numbers are the n of the way's chains.
func (w way) numbers() []uint32 {
	switch w.what {
	case pick, lead, note:
		return sizes
	}
	return []uint32{w.timeout}
}

// sizes are the numbers of endpoints that there are chains for: the powers of two, and
// what lies half way between them. A port with a number between is in the next larger
// one, in which some places are then empty.
var sizes = func() []uint32 {
	all := []uint32{1, 2}
	for n := uint32(4); n <= maxEndpoints; n *= 2 {
		all = append(all, n/4*3, n)
	}
	return all
}()

// maxEndpoints is how many endpoints of a port are used.
const maxEndpoints = 1 << 16

// sizeOf is the size for n endpoints.
func sizeOf(n int) uint32 {
	i, _ := slices.BinarySearch(sizes, uint32(n))
	return sizes[i]
}

// draws is how often a place is drawn: at least two of three are taken, so that about
// four of a thousand connections find none. Those are left to the places that are all
// taken: the endpoints there get that much more.
const draws = 5

// tries are the sizes to draw from, one after another, until there is an endpoint. The
// last one is for a packet that comes just when the last endpoints go: it has read
// the old number but looks up the new elements.
func tries(size uint32) []uint32 {
	var all []uint32
	i := slices.Index(sizes, size)
	if i < 4 { // no place is ever empty
		all = []uint32{size}
	} else {
		all = append(slices.Repeat([]uint32{size}, draws), sizes[i-1])
	}
	if size > 1 {
		all = append(all, 1)
	}
	return all
}

// rules are those of the way's chain for n.
func (w way) rules(n uint32, c *Config, f nft.Family) []table.Rule {
	var rules []table.Rule
	drop := table.Rule{verdict{nft.Drop, ""}}
	switch w.what {
	case pick:
		for i, size := range tries(n) {
			rules = append(rules, table.Rule{choose{draw{c.Scheduler, uint32(i)}, size}})
		}
		return append(rules, drop)
	case lead:
		for i, size := range tries(n) {
			rules = append(rules, table.Rule{chooseOwned{w, draw{c.Scheduler, uint32(i)}, size}})
		}
		return append(rules, drop)
	case note:
		for i, size := range tries(n) {
			rules = append(rules, table.Rule{remember{w, draw{c.Scheduler, uint32(i)}, size}, verdict{nft.Return, ""}})
		}
		return rules
	case sticky:
		word := wordCluster
		if w.local {
			word = wordLocal
		}
		return []table.Rule{{recall{w}}, {forget{w}}, {act{w.from, word, NoteActions}}, {recall{w}}, drop}
	case outside:
		return append(externalRules(w, c, f), drop)
	case guard:
		return []table.Rule{{allowed{}, act{byIP, wordGuarded, GuardedActions}}, drop}
	}
	return nil
}

// externalRules are for a port whose external traffic must stay on the node it came
// to. Clients in the cluster are not bound by that: pods and this node itself
// may use any endpoint, as if they came in by another node.
func externalRules(w way, c *Config, f nft.Family) []table.Rule {
	anywhere, here := table.Statement(act{w.from, wordCluster, PoolActions}), table.Statement(act{w.from, wordLocal, PoolActions})
	if w.timeout > 0 {
		to := way{what: sticky, from: w.from, timeout: w.timeout}
		anywhere = verdict{nft.Goto, to.chain(w.timeout)}
		to.local = true
		here = verdict{nft.Goto, to.chain(w.timeout)}
	}
	var rules []table.Rule
	for _, pods := range ofFamily(c.ClusterCIDRs, f) {
		rules = append(rules, table.Rule{from{pods, false}, anywhere})
	}
	return append(rules, table.Rule{fromLocal{}, anywhere}, table.Rule{here})
}

// with are the ways that the way leads on to by chains of its own.
func (w way) with() []way {
	if w.what != outside || w.timeout == 0 {
		return nil
	}
	return []way{{what: sticky, from: w.from, timeout: w.timeout}, {what: sticky, from: w.from, timeout: w.timeout, local: true}}
}
