package proxy

import (
	"slices"

	"github.com/kemudi/kemudi/internal/podnet/nft"
	"github.com/kemudi/kemudi/internal/podnet/nft/table"
)

// rules are the model of one family's table, and who uses what is shared in it.
type rules struct {
	*table.Model
	cfg    *Config
	family nft.Family
	ways   map[way]int // how many services use each way
	turns  turns
}

// newRules returns the rules of an empty cluster.
func newRules(c *Config, node *NodeFacts, at int) *rules {
	f := families[at]
	r := &rules{Model: table.New(tableOf(f)), cfg: c, family: f, ways: map[way]int{}}
	for _, s := range sets[at] {
		r.AddSet(s)
	}
	r.AddSet(affinities[at])
	r.base(node)
	for _, e := range baseElems(f) {
		r.Claim(nil, e)
	}
	r.Full() // so that Commit tells what comes on top
	return r
}

// base makes the chains that are always there.
func (r *rules) base(node *NodeFacts) {
	for _, ch := range baseChains(r.cfg, node, r.family) {
		r.SetChain(ch)
	}
}

// replace puts an owner's fragment in the place of its last one.
func (r *rules) replace(o *owner, before, now *fragment) {
	if before == nil {
		before = &fragment{}
	}
	if now == nil {
		now = &fragment{}
	}
	stays, was := holds(now.elems), holds(before.elems)
	for _, e := range before.elems {
		if !stays(e) {
			r.Release(o, e.ID)
		}
	}
	for _, e := range now.elems {
		if !was(e) {
			r.Claim(o, e)
		}
	}
	for i, p := range before.pools {
		if findPool(now.pools, p.at, i) == nil {
			r.replacePool(o, p, nil)
		}
	}
	for i, p := range now.pools {
		r.replacePool(o, findPool(before.pools, p.at, i), p)
	}
	r.replaceTurns(before, now)
	for _, w := range now.ways {
		r.ways[w]++
		if r.ways[w] == 1 {
			r.open(w)
		}
	}
	for _, w := range before.ways {
		r.ways[w]--
	}
}

// holds says of elements whether a list has just them.
func holds(list []table.Elem) func(table.Elem) bool {
	if len(list) <= fewElems {
		return func(e table.Elem) bool { return slices.Contains(list, e) }
	}
	values := make(map[table.ID]string, len(list))
	for _, e := range list {
		values[e.ID] = e.Value
	}
	return func(e table.Elem) bool {
		v, ok := values[e.ID]
		return ok && v == e.Value
	}
}

// open makes a way's chains, if they are not there.
func (r *rules) open(w way) {
	for _, n := range w.numbers() {
		if name := w.chain(n); !r.HasChain(name) {
			r.SetChain(table.Chain{Name: name, Rules: w.rules(n, r.cfg, r.family)})
			for _, s := range w.maps() {
				r.Claim(nil, Key{Set: s, Index: w.number(n)}.elem(r.family, Value{Verdict: w.verdict(n)}))
			}
		}
	}
}

// Before says whether o comes before another owner when both claim an element: the
// older one does.
func (o *owner) Before(than table.Owner) bool {
	other := than.(*owner)
	if !o.since.Equal(other.since) {
		return o.since.Before(other.since)
	}
	if o.key.Namespace != other.key.Namespace {
		return o.key.Namespace < other.key.Namespace
	}
	return o.key.Name < other.key.Name
}

// changes are what has changed since the last call.
func (r *rules) changes() table.Changes {
	r.close()
	return r.Commit()
}

// maxIdle is how many ways that nobody uses are kept: of those with a timeout, of which
// there may be many. The others are few, and are soon needed again.
const maxIdle = 64

// close takes ways away that are out of use, once there are too many of them.
func (r *rules) close() {
	var idle []way
	for w, users := range r.ways {
		if users == 0 && w.timeout > 0 {
			idle = append(idle, w)
		}
	}
	if len(idle) <= maxIdle {
		return
	}
	for _, w := range idle {
		for _, n := range w.numbers() {
			r.DelChain(w.chain(n))
			for _, s := range w.maps() {
				r.Release(nil, Key{Set: s, Index: w.number(n)}.id(r.family))
			}
		}
		delete(r.ways, w)
	}
}
