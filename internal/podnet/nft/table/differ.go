package table

import (
	"slices"

	"github.com/kemudi/kemudi/internal/podnet/nft"
)

// differences are the elements in which a table that exists differs from one that is given in full. same is false if
// they are not all: if its sets or chains are others, or a set is one whose elements are not compared.
//
// What is as it is to be costs the kernel nothing. To write it again would cost a transaction of the table's size, and
// of each element in it the kernel makes a message of its own page for who watches tables.
func (k *Kernel) differences(c *Changes) (diff Changes, same bool, err error) {
	if same, err = k.shaped(c); !same {
		return Changes{}, false, err
	}
	diff.Table = c.Table
	at := make(map[ID]int32, len(c.Add))
	for i := range c.Add {
		at[c.Add[i].ID] = int32(i)
	}
	found := make([]bool, len(c.Add))
	var key []byte
	for _, s := range c.Sets {
		if s.Keep {
			continue
		}
		wrong := map[string]bool{} // some may be told twice
		err := k.conn.EachElem(c.Table, s.Name, func(e nft.Elem) {
			key = append(append(key[:0], e.Key...), e.Last...)
			if i, wanted := at[ID{s, string(key)}]; wanted && s.has(&e, c.Add[i].Value) {
				found[i] = true
			} else if !wrong[string(key)] {
				id := ID{s, string(key)}
				wrong[id.Key] = true
				diff.Del = append(diff.Del, Elem{ID: id})
			}
		})
		if err != nil {
			return Changes{}, false, err
		}
	}
	for i := range c.Add {
		if !found[i] {
			diff.Add = append(diff.Add, c.Add[i])
		}
	}
	return diff, true, nil
}

// has says that an element that was read has a value, as Elem has it.
func (s *Set) has(e *nft.Elem, value string) bool {
	if s.holdsVerdicts() {
		code, chain := verdict(value)
		return code == e.Code && chain == e.Chain
	}
	return string(e.Data) == value
}

// shaped says that the kernel has just the sets and chains, and that all sets are of those whose elements are compared:
// the ends of ranges of one field are elements of their own there.
func (k *Kernel) shaped(c *Changes) (bool, error) {
	sets, err := k.conn.Sets(c.Table)
	if err != nil || len(sets) != len(c.Sets) {
		return false, err
	}
	for _, f := range sets {
		i := slices.IndexFunc(c.Sets, func(s *Set) bool { return s.Name == f.Name })
		if i < 0 || !f.Matches(c.Sets[i].Set) || c.Sets[i].Interval && len(c.Sets[i].Key) == 1 {
			return false, nil
		}
	}
	chains, err := k.conn.FoundChains(c.Table)
	if err != nil || len(chains) != len(c.Chains) {
		return false, err
	}
	for _, want := range c.Chains {
		f := chains[want.Name]
		if f == nil || len(f.Marks) != len(want.Rules) || (f.Hook == nil) != (want.Hook == nil) || f.Hook != nil && (*f.Hook != *want.Hook || !f.Accepts) {
			return false, nil
		}
		for i, r := range want.Rules {
			if f.Marks[i] != r.mark(c.Table) {
				return false, nil
			}
		}
	}
	return true, nil
}
