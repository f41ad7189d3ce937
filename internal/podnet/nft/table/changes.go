package table

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kemudi/kemudi/internal/podnet/nft"
)

// Changes is what is to be done to one table. With Full set it is all the table is
// to hold; otherwise it applies to what the table holds.
type Changes struct {
	Table nft.Table
	Full  bool
	// Sets are made. Of DelSets no rule and no element is left.
	Sets, DelSets []*Set
	// Chains are made, or emptied if they exist, and get these rules.
	Chains    []Chain
	DelChains []string
	// An element with a new value is in both lists.
	Del, Add []Elem
}

// Empty says that there is nothing to do.
func (c *Changes) Empty() bool {
	return !c.Full && len(c.Sets)+len(c.DelSets)+len(c.Chains)+len(c.DelChains)+len(c.Del)+len(c.Add) == 0
}

// Text lists the changes in a fixed order, for people and tests. The sets that are
// made are not told: their elements are.
func (c *Changes) Text() string {
	var b strings.Builder
	for _, name := range c.DelChains {
		fmt.Fprintf(&b, "delete chain %s\n", name)
	}
	for _, s := range c.DelSets {
		fmt.Fprintf(&b, "delete set %s\n", s.Name)
	}
	for _, e := range sorted(c.Del) {
		fmt.Fprintf(&b, "delete @%s %s\n", e.Set.Name, e)
	}
	for _, e := range sorted(c.Add) {
		fmt.Fprintf(&b, "add @%s %s\n", e.Set.Name, e)
	}
	byName := func(a, b Chain) int { return strings.Compare(a.Name, b.Name) }
	for _, ch := range slices.SortedFunc(slices.Values(c.Chains), byName) {
		b.WriteString(ch.Text(c.Table.Family))
	}
	return b.String()
}

func sorted(elems []Elem) []Elem {
	return slices.SortedFunc(slices.Values(elems), func(a, b Elem) int {
		return cmp.Or(strings.Compare(a.Set.Name, b.Set.Name), strings.Compare(a.Key, b.Key))
	})
}

// write writes the changes in an order in which nothing refers to what does not
// exist yet or any more.
func (c *Changes) write(b *nft.Batch) {
	t := c.Table
	for _, s := range c.Sets {
		b.AddSet(t, s.Set)
	}
	for _, ch := range c.Chains {
		b.AddChain(t, ch.Name, ch.Hook)
	}
	bySet(c.Del, func(set string, elems []nft.Elem) { b.DelElems(t, set, elems) })
	for _, ch := range c.Chains {
		b.FlushChain(t, ch.Name)
		for _, r := range ch.Rules {
			var exprs []nft.Expr
			for _, s := range r {
				exprs = append(exprs, s.Lower(t, b)...)
			}
			b.AddNotedRule(t, ch.Name, r.note(), exprs...)
		}
	}
	bySet(c.Add, func(set string, elems []nft.Elem) { b.AddElems(t, set, elems) })
	for _, name := range c.DelChains {
		b.FlushChain(t, name) // they may refer to each other
	}
	for _, name := range c.DelChains {
		b.DelChain(t, name)
	}
	for _, s := range c.DelSets {
		b.DelSet(t, s.Name)
	}
}

func bySet(elems []Elem, fn func(set string, elems []nft.Elem)) {
	size := 0
	for i := range elems {
		size += len(elems[i].Key) + len(elems[i].Value)
	}
	arena := make([]byte, 0, size)
	lists := map[*Set][]nft.Elem{}
	for i := range elems {
		s := elems[i].Set
		lists[s] = append(lists[s], elems[i].wire(&arena)...)
	}
	names := make([]*Set, 0, len(lists))
	for s := range lists {
		names = append(names, s)
	}
	slices.SortFunc(names, func(a, b *Set) int { return strings.Compare(a.Name, b.Name) })
	for _, s := range names {
		fn(s.Name, lists[s])
	}
}
