package controller

import (
	"context"
	"slices"

	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/resource"
)

// Kinds is a set of resources that may grow and shrink while controllers run. A
// resource is in the set only while transports have a cache of it.
type Kinds interface {
	// Defs are the present members, and a channel that is closed when they are
	// others (nil: never).
	Defs() ([]*resource.Def, <-chan struct{})
}

// Fixed is a set of resources that stays as it is.
type Fixed []*resource.Def

var _ Kinds = Fixed(nil)

// Defs returns the set.
func (f Fixed) Defs() ([]*resource.Def, <-chan struct{}) { return f, nil }

// Every is an input of all resources of a set, as long as they are in there.
type Every struct {
	Kinds Kinds
	// Of says how a member is watched; ok is false if it is not.
	Of func(def *resource.Def) (w Watch, ok bool)
	// Changed returns the keys to wake when the set has changed; the caches of
	// what is new are synced by then.
	Changed func(k *Kit) []string
}

// has says that a resource is in the set and watched. A nil Every has none.
func (e *Every) has(def *resource.Def) bool {
	if e == nil {
		return false
	}
	defs, _ := e.Kinds.Defs()
	_, ok := e.Of(def)
	return ok && has(defs, def)
}

// has says that a resource is among others, by whichever of its definitions.
func has(defs []*resource.Def, def *resource.Def) bool {
	return slices.ContainsFunc(defs, func(d *resource.Def) bool { return d.Base() == def.Base() })
}

// watchEvery watches what is in the set, as that changes, until ctx ends. A nil Every has nothing.
func (r *runner) watchEvery(ctx context.Context, e *Every) error {
	if e == nil {
		<-ctx.Done()
		return nil
	}
	leave := map[*resource.Def]func(){} // by the first definition
	defer func() {
		for _, f := range leave {
			f()
		}
	}()
	var added []*resource.Def // that nothing was woken for
	for first := true; ; first = false {
		defs, changed := e.Kinds.Defs()
		for def, f := range leave {
			if !has(defs, def) {
				f()
				delete(leave, def)
				added = slices.DeleteFunc(added, func(d *resource.Def) bool { return d.Base() == def })
			}
		}
		for _, def := range defs {
			if w, ok := e.Of(def); ok && leave[def.Base()] == nil {
				_, leave[def.Base()] = r.watch(w)
				added = append(added, def)
			}
		}
		if !first {
			if !synced(ctx, r.k.t, added, changed) {
				if ctx.Err() != nil {
					return nil
				}
				continue
			}
			for _, key := range e.Changed(r.k) {
				r.add(inFresh, key)
			}
		}
		added = nil
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// synced waits for the caches of resources; it is false if ctx ends or what may
// interrupt it happens before.
func synced(ctx context.Context, t client.Transport, defs []*resource.Def, interrupt <-chan struct{}) bool {
	for _, def := range defs {
		c := t.Cache(def, "")
		if c == nil { // it has left the set: that is about to be told
			continue
		}
		select {
		case <-c.Synced():
		case <-interrupt:
			return false
		case <-ctx.Done():
			return false
		}
	}
	return true
}
