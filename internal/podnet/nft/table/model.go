package table

import (
	"maps"
	"slices"
	"strings"

	"github.com/kemudi/kemudi/internal/podnet/nft"
)

// Model is what one table is to hold. It is pure: no I/O, no clock. It belongs to
// one goroutine. Its methods only note what is asked for; Commit says what differs
// from the Commit before.
type Model struct {
	table  nft.Table
	sets   map[string]*Set
	elems  map[ID]claim
	rivals map[ID][]claim // further claims to an element, in no order
	chains map[string]chainText
	// What was touched since the last Commit, and what it was before it; nil after Anew.
	wasElem  map[ID]prior
	wasChain map[string]string // the content; empty: not there
	wasSet   map[string]*Set   // nil: not there
}

// Owner is what claims elements. It is compared by ==. Of two that claim an element
// the one that comes before the other has it.
type Owner interface{ Before(o Owner) bool }

type claim struct {
	by    Owner // nil: nobody, who comes before all
	value string
}

// yields says whether a claim of o goes before this one.
func (c *claim) yields(o Owner) bool {
	return c.by != nil && (o == nil || o.Before(c.by))
}

// prior is what an element was.
type prior struct {
	value string
	there bool
}

type chainText struct {
	Chain
	content string
}

// New returns the model of an empty table.
func New(t nft.Table) *Model {
	return &Model{
		table: t, sets: map[string]*Set{}, elems: map[ID]claim{}, rivals: map[ID][]claim{}, chains: map[string]chainText{},
		wasElem: map[ID]prior{}, wasChain: map[string]string{}, wasSet: map[string]*Set{},
	}
}

// AddSet declares a set. Its name is free.
func (m *Model) AddSet(s *Set) {
	m.touchSet(s.Name)
	m.sets[s.Name] = s
}

// DelSet takes a set away. Its elements have been released, and no rule uses it.
func (m *Model) DelSet(s *Set) {
	m.touchSet(s.Name)
	delete(m.sets, s.Name)
}

func (m *Model) touchSet(name string) {
	if _, ok := m.wasSet[name]; !ok && m.wasSet != nil {
		m.wasSet[name] = m.sets[name]
	}
}

// SetChain makes a chain, or gives it these rules.
func (m *Model) SetChain(c Chain) {
	m.touchChain(c.Name)
	m.chains[c.Name] = chainText{c, c.Text(m.table.Family)}
}

// DelChain takes a chain away. Nothing refers to it any more.
func (m *Model) DelChain(name string) {
	m.touchChain(name)
	delete(m.chains, name)
}

// HasChain says whether there is such a chain.
func (m *Model) HasChain(name string) bool {
	_, ok := m.chains[name]
	return ok
}

func (m *Model) touchChain(name string) {
	if _, ok := m.wasChain[name]; !ok && m.wasChain != nil {
		m.wasChain[name] = m.chains[name].content
	}
}

func (m *Model) touch(id ID) {
	if _, ok := m.wasElem[id]; ok || m.wasElem == nil {
		return
	}
	c, ok := m.elems[id]
	m.wasElem[id] = prior{c.value, ok}
}

// Claim makes the element the owner's, unless one that comes before it has it. An
// owner claims an element once; for another value it releases it first. Without an
// owner the element is always there.
func (m *Model) Claim(o Owner, e Elem) {
	m.touch(e.ID)
	c := claim{o, e.Value}
	holder, taken := m.elems[e.ID]
	if taken && !holder.yields(o) {
		m.rivals[e.ID] = append(m.rivals[e.ID], c)
		return
	}
	if taken {
		m.rivals[e.ID] = append(m.rivals[e.ID], holder)
	}
	m.elems[e.ID] = c
}

// Release gives up the owner's claim; the first of the others gets the element.
func (m *Model) Release(o Owner, id ID) {
	m.touch(id)
	rivals := m.rivals[id]
	if holder, ok := m.elems[id]; ok && holder.by != o {
		m.setRivals(id, slices.DeleteFunc(rivals, func(c claim) bool { return c.by == o }))
		return
	}
	if len(rivals) == 0 {
		delete(m.elems, id)
		return
	}
	best := 0
	for i := range rivals {
		if rivals[best].yields(rivals[i].by) {
			best = i
		}
	}
	m.elems[id] = rivals[best]
	m.setRivals(id, slices.Delete(rivals, best, best+1))
}

func (m *Model) setRivals(id ID, rivals []claim) {
	if len(rivals) == 0 {
		delete(m.rivals, id)
		return
	}
	m.rivals[id] = rivals
}

// Commit returns what has changed since the last Commit. The caller brings that to
// the kernel, or, if it cannot, later asks for everything with Full.
func (m *Model) Commit() Changes {
	c := Changes{Table: m.table}
	for _, name := range slices.Sorted(maps.Keys(m.wasSet)) {
		was, now := m.wasSet[name], m.sets[name]
		if was != now && was != nil {
			c.DelSets = append(c.DelSets, was)
		}
		if was != now && now != nil {
			c.Sets = append(c.Sets, now)
		}
	}
	for id, was := range m.wasElem {
		now, ok := m.elems[id]
		if ok && was.there && was.value == now.value {
			continue
		}
		if was.there {
			c.Del = append(c.Del, Elem{id, was.value})
		}
		if ok {
			c.Add = append(c.Add, Elem{id, now.value})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.wasChain)) {
		now, ok := m.chains[name]
		switch was := m.wasChain[name]; {
		case !ok && was != "":
			c.DelChains = append(c.DelChains, name)
		case ok && was != now.content:
			c.Chains = append(c.Chains, now.Chain)
		}
	}
	m.settle()
	return c
}

// Anew says that Full is asked for next, so that what changes until then need not be noted.
func (m *Model) Anew() { m.wasElem, m.wasChain, m.wasSet = nil, nil, nil }

// settle forgets what was before. A map that has been large once is not kept: to
// clear it costs as much as it was large.
func (m *Model) settle() {
	m.wasElem, m.wasChain, m.wasSet = map[ID]prior{}, map[string]string{}, map[string]*Set{}
}

// Full is everything the table is to hold. What was noted before it is in it; the
// next Commit starts from here.
func (m *Model) Full() Changes {
	m.settle()
	c := Changes{Table: m.table, Full: true, Add: make([]Elem, 0, len(m.elems))}
	c.Sets = slices.SortedFunc(maps.Values(m.sets), func(a, b *Set) int { return strings.Compare(a.Name, b.Name) })
	for _, name := range slices.Sorted(maps.Keys(m.chains)) {
		c.Chains = append(c.Chains, m.chains[name].Chain)
	}
	for id, cl := range m.elems {
		c.Add = append(c.Add, Elem{id, cl.value})
	}
	return c
}
