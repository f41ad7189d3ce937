package plane

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/resource"
)

// kinds are the resources that are served at present, to controllers that look at all
// of them.
type kinds struct {
	change sync.Mutex // held by who changes the set: what is served, cached and told follows in order
	mu     struct {
		sync.Mutex
		defs    []*resource.Def // never changed in place
		changed chan struct{}   // closed when defs is old
	}
}

var _ controller.Kinds = (*kinds)(nil)

func newKinds(defs []*resource.Def) *kinds {
	k := &kinds{}
	k.mu.defs, k.mu.changed = defs, make(chan struct{})
	return k
}

// Defs are the present resources, and a channel that is closed when they are others.
func (k *kinds) Defs() ([]*resource.Def, <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.mu.defs, k.mu.changed
}

func (k *kinds) now() []*resource.Def {
	defs, _ := k.Defs()
	return defs
}

func (k *kinds) set(defs []*resource.Def) {
	k.mu.Lock()
	defer k.mu.Unlock()
	close(k.mu.changed)
	k.mu.defs, k.mu.changed = defs, make(chan struct{})
}

// Defs are the resources that are served at present. The list is read-only.
func (p *Plane) Defs() []*resource.Def { return p.kinds.now() }

// AddKind serves one more resource, while the control plane runs. It returns when its objects
// can be read: the garbage collector and the namespace controller know it before anybody
// can make one.
func (p *Plane) AddKind(ctx context.Context, def *resource.Def) error {
	p.kinds.change.Lock()
	defer p.kinds.change.Unlock()
	if def.Stored() {
		if _, err := p.caches.Add(ctx, def); err != nil {
			return fmt.Errorf("serve %s: %w", def, err)
		}
	}
	defs := append(slices.Clone(p.kinds.now()), def)
	p.kinds.set(defs)
	p.server.SetDefs(defs)
	return nil
}

// ReplaceKind serves a resource by another definition, made with [resource.Def.Base] of the one
// that it takes the place of. Objects stay cached, and watches of versions of which both say the same go on; others end.
func (p *Plane) ReplaceKind(old, def *resource.Def) error {
	p.kinds.change.Lock()
	defer p.kinds.change.Unlock()
	defs := slices.Clone(p.kinds.now())
	at := slices.Index(defs, old)
	if at < 0 || old.Base() != def.Base() {
		return fmt.Errorf("serve %s: the definition does not replace one that is served", def)
	}
	defs[at] = def
	p.kinds.set(defs)
	p.server.SetDefs(defs)
	return nil
}

// RemoveKind serves a resource no longer. Its objects stay in the store.
func (p *Plane) RemoveKind(def *resource.Def) {
	p.kinds.change.Lock()
	defer p.kinds.change.Unlock()
	defs := slices.DeleteFunc(slices.Clone(p.kinds.now()), func(d *resource.Def) bool { return d.Base() == def.Base() })
	p.server.SetDefs(defs)
	p.kinds.set(defs)
	p.caches.Remove(def)
}
