package proxy

import (
	"maps"
	"slices"
)

// edit collects the changes of one commit to one table.
type edit struct {
	*table
	elems  map[Key]*Value    // elements touched: their values before; nil: not there
	chains map[string]string // chains touched: their content before; empty: not there
	picks  map[uint32]bool   // pick chains whose use has changed
}

func newEdit(t *table) *edit {
	return &edit{table: t, elems: map[Key]*Value{}, chains: map[string]string{}, picks: map[uint32]bool{}}
}

// replace puts an owner's fragment in the place of its last one.
func (e *edit) replace(o *owner, before, now *fragment) {
	if before == nil {
		before = &fragment{}
	}
	if now == nil {
		now = &fragment{}
	}
	kept := map[Key]Value{}
	for _, el := range now.elems {
		kept[el.Key] = el.Value
	}
	for _, el := range before.elems {
		if v, ok := kept[el.Key]; ok && v == el.Value {
			delete(kept, el.Key) // as it was
			continue
		}
		e.release(o, el.Key)
	}
	for _, el := range now.elems {
		if _, ok := kept[el.Key]; ok {
			e.claim(o, el)
		}
	}
	e.replaceChains(before.chains, now.chains)
	for _, n := range before.picks {
		e.picks[n] = true
		e.table.picks[n]--
	}
	for _, n := range now.picks {
		e.picks[n] = true
		e.table.picks[n]++
	}
}

func (e *edit) touch(k Key) {
	if _, ok := e.elems[k]; ok {
		return
	}
	if c, ok := e.table.elems[k]; ok {
		e.elems[k] = &c.value
	} else {
		e.elems[k] = nil
	}
}

// claim makes the element the owner's, unless an older owner has it.
func (e *edit) claim(o *owner, el Elem) {
	e.touch(el.Key)
	c := claim{o, el.Value}
	holder, taken := e.table.elems[el.Key]
	if taken && !o.before(holder.by) {
		e.rivals[el.Key] = append(e.rivals[el.Key], c)
		return
	}
	if taken {
		e.rivals[el.Key] = append(e.rivals[el.Key], holder)
	}
	e.table.elems[el.Key] = c
}

// release gives up the owner's claim; the oldest of the others gets the element.
func (e *edit) release(o *owner, k Key) {
	e.touch(k)
	rivals := e.rivals[k]
	if holder, ok := e.table.elems[k]; ok && holder.by != o {
		e.setRivals(k, slices.DeleteFunc(rivals, func(c claim) bool { return c.by == o }))
		return
	}
	if len(rivals) == 0 {
		delete(e.table.elems, k)
		return
	}
	best := 0
	for i := range rivals {
		if rivals[i].by.before(rivals[best].by) {
			best = i
		}
	}
	e.table.elems[k] = rivals[best]
	e.setRivals(k, slices.Delete(rivals, best, best+1))
}

func (e *edit) setRivals(k Key, rivals []claim) {
	if len(rivals) == 0 {
		delete(e.rivals, k)
		return
	}
	e.rivals[k] = rivals
}

// before says whether o comes before other when both claim an element.
func (o *owner) before(other *owner) bool {
	if !o.since.Equal(other.since) {
		return o.since.Before(other.since)
	}
	if o.key.Namespace != other.key.Namespace {
		return o.key.Namespace < other.key.Namespace
	}
	return o.key.Name < other.key.Name
}

func (e *edit) replaceChains(before, now []Chain) {
	kept := map[string]bool{}
	for _, c := range now {
		kept[c.Name] = true
		text := chainText{c, c.text(e.family)}
		e.touchChain(c.Name)
		e.table.chains[c.Name] = text
	}
	for _, c := range before {
		if !kept[c.Name] {
			e.touchChain(c.Name)
			delete(e.table.chains, c.Name)
		}
	}
}

func (e *edit) touchChain(name string) {
	if _, ok := e.chains[name]; !ok {
		e.chains[name] = e.table.chains[name].content
	}
}

// changes compares what was touched with what it was before.
func (e *edit) changes() Changes {
	e.pickChanges()
	c := Changes{Family: e.family}
	for k, old := range e.elems {
		now, ok := e.table.elems[k]
		if ok && old != nil && *old == now.value {
			continue
		}
		if old != nil {
			c.Del = append(c.Del, Elem{k, *old})
		}
		if ok {
			c.Add = append(c.Add, Elem{k, now.value})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(e.chains)) {
		now, ok := e.table.chains[name]
		switch {
		case !ok && e.chains[name] != "":
			c.DelChains = append(c.DelChains, name)
		case ok && e.chains[name] != now.content:
			c.Chains = append(c.Chains, now.Chain)
		}
	}
	return c
}

// maxIdlePicks is how many pick chains nobody uses are kept. To make or delete
// one costs the kernel a walk through all endpoints, and a service that is
// scaled or rolled out soon needs the same numbers again.
const maxIdlePicks = 64

// pickChanges makes the pick chains that came into use, and drops those out of
// use once there are too many of them.
func (e *edit) pickChanges() {
	for n := range e.picks {
		if name := pickChain(n); e.table.picks[n] > 0 && e.table.chains[name].content == "" {
			key := Key{Set: Picks, Index: n}
			e.touchChain(name)
			e.touch(key)
			ch := Chain{Name: name, Rules: pickRules(n)}
			e.table.chains[name] = chainText{ch, ch.text(e.family)}
			e.table.elems[key] = claim{value: Value{Goto: name}}
		}
	}
	var idle []uint32
	for n, users := range e.table.picks {
		if users == 0 {
			idle = append(idle, n)
		}
	}
	if len(idle) <= maxIdlePicks {
		return
	}
	for _, n := range idle {
		key := Key{Set: Picks, Index: n}
		e.touchChain(pickChain(n))
		e.touch(key)
		delete(e.table.chains, pickChain(n))
		delete(e.table.elems, key)
		delete(e.table.picks, n)
	}
}
