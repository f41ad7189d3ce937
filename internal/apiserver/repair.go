package apiserver

import (
	"context"
	"fmt"

	"github.com/kemudi/kemudi/internal/apiserver/alloc"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/store"
)

// repairAllocations makes the allocations of objects that have none in the store: those
// that another Kubernetes has written. What two objects have is left to the
// first, and told of. Allocations that no object uses any more, because something else
// than a server has changed the store, are given up.
func (s *Server) repairAllocations(ctx context.Context) error {
	before, err := s.alloc.All(ctx)
	if err != nil {
		return err
	}
	var rev int64 // at which the objects of all allocations are there
	for _, c := range before {
		rev = max(rev, c.Rev)
	}
	u := usage{objects: map[string]int64{}, allocated: map[string]bool{}}
	for _, d := range s.o.Defs {
		if d.Commit == nil {
			continue
		}
		c := s.o.Caches.Cache(d)
		if err := s.reads.Synced(ctx, c); err != nil {
			return err
		}
		if err := c.WaitRev(ctx, rev); err != nil {
			return err
		}
		for _, it := range c.List("", nil) {
			if err := s.repair(ctx, d, it, u); err != nil {
				s.log.WarnContext(ctx, "allocate what a stored object has", "resource", d.String(), "key", it.Key, "err", err)
			}
		}
	}
	return s.freeAllocations(ctx, before, u)
}

// usage is what was seen of the objects: their revisions, by the store's keys, and
// the keys of the allocations that they use.
type usage struct {
	objects   map[string]int64
	allocated map[string]bool
}

// freeAllocations gives up those of the allocations that are not used. The objects have been
// looked at after the allocations were read: who takes one since then changes it or its object.
func (s *Server) freeAllocations(ctx context.Context, before []alloc.Allocation, u usage) error {
	for _, c := range before {
		if u.allocated[c.Key] {
			continue
		}
		res, err := s.o.Store.Txn(ctx, store.Txn{
			Conds: []store.Cond{{Key: c.Key, Rev: c.Rev}, {Key: c.Owner, Rev: u.objects[c.Owner]}},
			Ops:   []store.Op{{Key: c.Key}},
		})
		switch {
		case err != nil:
			return fmt.Errorf("give up allocation %s: %w", c.Key, err)
		case res.OK:
			s.alloc.Freed(c)
			s.log.WarnContext(ctx, "gave up an allocation that nothing uses", "allocation", c.Key, "owner", c.Owner)
		}
	}
	return nil
}

// repair makes the allocations of one object, and notes in u which those are.
func (s *Server) repair(ctx context.Context, d *resource.Def, it *cache.Item, u usage) error {
	key := d.Key("", it.Key)
	u.objects[key] = it.Rev
	tx := s.alloc.Begin(ctx, key)
	defer func() {
		for _, key := range tx.Keys() {
			u.allocated[key] = true
		}
	}()
	if err := d.Commit(tx, it.Object.DeepCopyObject().(resource.Object), nil); err != nil {
		return err
	}
	txn := store.Txn{Conds: []store.Cond{{Key: key, Rev: it.Rev}}}
	if tx.AddTo(&txn); len(txn.Ops) == 0 {
		return nil
	}
	res, err := s.o.Store.Txn(ctx, txn)
	switch {
	case err != nil:
		return fmt.Errorf("write allocations: %w", err)
	case !res.OK:
		s.alloc.Lost(txn.Conds, res.Now)
		return errAllocationLost
	}
	tx.Committed(res.Rev)
	return nil
}
