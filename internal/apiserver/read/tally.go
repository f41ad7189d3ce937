package read

import (
	"sync"
	"sync/atomic"
)

// Listed says of which resource objects were listed, and how they were found.
type Listed struct {
	Group, Resource string
	Cached          bool   // in the cache, or else in the store
	Index           string // that the search was narrowed by; empty: by none
}

// ListCounts is what lists came to.
type ListCounts struct {
	Lists     int64
	Fetched   int64 // objects that were looked at
	Evaluated int64 // and of these, the ones that a selector was asked about once they had been read from the store
	Returned  int64
}

// Plus is both together.
func (n ListCounts) Plus(o ListCounts) ListCounts {
	return ListCounts{n.Lists + o.Lists, n.Fetched + o.Fetched, n.Evaluated + o.Evaluated, n.Returned + o.Returned}
}

// tally counts lists.
type tally struct{ of sync.Map } // Listed: *listCounts

type listCounts struct{ lists, fetched, evaluated, returned atomic.Int64 }

func (t *tally) add(l Listed, n ListCounts) {
	have, ok := t.of.Load(l)
	if !ok {
		have, _ = t.of.LoadOrStore(l, &listCounts{})
	}
	c := have.(*listCounts)
	c.lists.Add(1)
	c.fetched.Add(n.Fetched)
	c.evaluated.Add(n.Evaluated)
	c.returned.Add(n.Returned)
}

// EachListed tells what lists have come to.
func (r *Reader) EachListed(tell func(l Listed, n ListCounts)) {
	r.lists.of.Range(func(key, value any) bool {
		c := value.(*listCounts)
		tell(key.(Listed), ListCounts{Lists: c.lists.Load(), Fetched: c.fetched.Load(), Evaluated: c.evaluated.Load(), Returned: c.returned.Load()})
		return true
	})
}
