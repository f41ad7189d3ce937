package write

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kemudi/kemudi/internal/apiserver/alloc"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/store"
)

// Repair makes the allocations of objects that have none in the store: those
// that another Kubernetes has written. What two objects have is left to the
// first, and told of. Allocations that no object uses any more, because something else
// than a server has changed the store, are given up.
func (p *Pipeline) Repair(ctx context.Context, defs []*resource.Def) error {
	for _, d := range defs {
		if d.Taking != nil || d.Offer != nil {
			if err := p.o.Reads.Synced(ctx, p.o.Caches.Cache(d)); err != nil {
				return err
			}
		}
	}
	before, err := p.alloc.All(ctx)
	if err != nil {
		return err
	}
	var rev int64 // at which the objects of all allocations are there
	for _, c := range before {
		rev = max(rev, c.Rev)
	}
	u := usage{objects: map[string]int64{}, allocated: map[string]bool{}}
	for _, d := range defs {
		if d.Commit == nil {
			continue
		}
		c := p.o.Caches.Cache(d)
		if err := p.o.Reads.Synced(ctx, c); err != nil {
			return err
		}
		if err := c.WaitRev(ctx, rev); err != nil {
			return err
		}
		for _, it := range c.List("", nil) {
			if err := p.repair(ctx, d, it, u); err != nil {
				p.o.Logger.WarnContext(ctx, "allocate what a stored object has", "resource", d.String(), "key", it.Key, "err", err)
				if refusal := apierrors.APIStatus(nil); !errors.As(err, &refusal) && p.o.Unmended != nil {
					p.o.Unmended()
				}
			}
		}
	}
	return p.freeAllocations(ctx, before, u)
}

// usage is what was seen of the objects: their revisions, by the store's keys, and
// the keys of the allocations that they use.
type usage struct {
	objects   map[string]int64
	allocated map[string]bool
}

// freeAllocations gives up those of the allocations that are not used. The objects have been
// looked at after the allocations were read: who takes one since then changes it or its object.
// What an object takes stays while there is who holds it, although that one may not allocate it
// any more (a range has gone).
func (p *Pipeline) freeAllocations(ctx context.Context, before []alloc.Allocation, u usage) error {
	for _, c := range before {
		if u.allocated[c.Key] || c.Object && u.objects[c.Owner] != 0 {
			continue
		}
		res, err := p.o.Store.Txn(ctx, store.Txn{
			Conds: []store.Cond{{Key: c.Key, Rev: c.Rev}, {Key: c.Owner, Rev: u.objects[c.Owner]}},
			Ops:   []store.Op{{Key: c.Key}},
		})
		switch {
		case err != nil:
			return fmt.Errorf("give up allocation %s: %w", c.Key, err)
		case res.OK:
			p.alloc.Freed(c, res.Rev)
			p.o.Logger.WarnContext(ctx, "gave up an allocation that nothing uses", "allocation", c.Key, "owner", c.Owner)
		}
	}
	return nil
}

// repair makes the allocations of one object, and notes in u which those are.
func (p *Pipeline) repair(ctx context.Context, d *resource.Def, it *cache.Item, u usage) error {
	key := d.Key("", it.Key)
	u.objects[key] = it.Rev
	tx := p.alloc.Begin(ctx, key, resource.Holder{Group: d.Group, Resource: d.Plural, Namespace: it.Object.GetNamespace(), Name: it.Object.GetName()})
	tx.Mends = it.Object
	defer func() {
		for _, key := range tx.Keys() {
			u.allocated[key] = true
		}
	}()
	if err := d.Commit(tx, it.Object.DeepCopyObject().(resource.Object), nil); err != nil {
		return err
	}
	txn := store.Txn{Conds: []store.Cond{{Key: key, Rev: it.Rev}}}
	if err := tx.AddTo(&txn); err != nil || len(txn.Ops) == 0 {
		return err
	}
	res, err := p.o.Store.Txn(ctx, txn)
	switch {
	case err != nil:
		return fmt.Errorf("write allocations: %w", err)
	case !res.OK:
		p.alloc.Lost(txn.Conds, res)
		return errAllocationLost
	}
	p.o.Reads.Answered(res.Rev)
	tx.Committed(res.Rev)
	return nil
}
