package table

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
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
// exist yet or any more. Elements come after the rules that look them up: the kernel walks through those that are
// there for each such rule.
func (c *Changes) write(b *nft.Batch) {
	t := c.Table
	b.Grow(c.size())
	for _, s := range c.Sets {
		b.AddSet(t, s.Set)
	}
	for _, ch := range c.Chains {
		b.AddChain(t, ch.Name, ch.Hook)
	}
	bySet(c.Del, func(set string, elems iter.Seq[nft.Elem]) { b.DelEach(t, set, elems) })
	for _, ch := range c.Chains {
		b.FlushChain(t, ch.Name)
		for _, r := range ch.Rules {
			var exprs []nft.Expr
			for _, s := range r {
				exprs = append(exprs, s.Lower(t, b)...)
			}
			b.AddNotedRule(t, ch.Name, nft.Note{Text: r.note(), Mark: r.mark(t)}, exprs...)
		}
	}
	bySet(c.Add, func(set string, elems iter.Seq[nft.Elem]) { b.AddEach(t, set, elems) })
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

// elemFrame is about what an element takes in a batch beside its key and value.
const elemFrame = 24

// size is about what the elements take in a batch.
func (c *Changes) size() (n int) {
	for _, list := range [][]Elem{c.Del, c.Add} {
		for i := range list {
			n += len(list[i].Key) + len(list[i].Value) + elemFrame
		}
	}
	return n
}

// bySet calls fn for each set that some of the elements are of, in the order of their names.
func bySet(elems []Elem, fn func(set string, elems iter.Seq[nft.Elem])) {
	of := map[*Set][]int32{} // where those of a set are
	for i := range elems {
		of[elems[i].Set] = append(of[elems[i].Set], int32(i))
	}
	names := slices.SortedFunc(maps.Keys(of), func(a, b *Set) int { return strings.Compare(a.Name, b.Name) })
	for _, s := range names {
		fn(s.Name, func(yield func(nft.Elem) bool) {
			var scratch []byte
			for _, i := range of[s] {
				more := false
				if scratch, more = elems[i].wire(scratch, yield); !more {
					return
				}
			}
		})
	}
}
