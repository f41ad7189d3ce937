package apiserver

import (
	"context"
	"fmt"

	"github.com/kemudi/kemudi/internal/apiserver/claims"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/store"
)

// repairClaims takes the claims of objects that have none in the store: those
// that another Kubernetes has written. What two objects claim is left to the
// first, and told of. Claims that no object uses any more, because something else
// than a server has changed the store, are given up.
func (s *Server) repairClaims(ctx context.Context) error {
	before, err := s.claims.All(ctx)
	if err != nil {
		return err
	}
	var rev int64 // at which the objects of all claims are there
	for _, c := range before {
		rev = max(rev, c.Rev)
	}
	u := usage{objects: map[string]int64{}, claims: map[string]bool{}}
	for _, d := range s.o.Defs {
		if d.Commit == nil {
			continue
		}
		c := s.o.Caches.Cache(d)
		if err := s.synced(ctx, c); err != nil {
			return err
		}
		if err := c.WaitRev(ctx, rev); err != nil {
			return err
		}
		for _, it := range c.List("", nil) {
			if err := s.repair(ctx, d, it, u); err != nil {
				s.log.WarnContext(ctx, "take claims of a stored object", "resource", d.String(), "key", it.Key, "err", err)
			}
		}
	}
	return s.freeClaims(ctx, before, u)
}

// usage is what was seen of the objects: their revisions, by the store's keys, and
// the keys of the claims that they use.
type usage struct {
	objects map[string]int64
	claims  map[string]bool
}

// freeClaims gives up those of the claims that are not used. The objects have been
// looked at after the claims were read: who takes one since then changes the claim or its object.
func (s *Server) freeClaims(ctx context.Context, before []claims.Claim, u usage) error {
	for _, c := range before {
		if u.claims[c.Key] {
			continue
		}
		res, err := s.o.Store.Txn(ctx, store.Txn{
			Conds: []store.Cond{{Key: c.Key, Rev: c.Rev}, {Key: c.Owner, Rev: u.objects[c.Owner]}},
			Ops:   []store.Op{{Key: c.Key}},
		})
		switch {
		case err != nil:
			return fmt.Errorf("give up claim %s: %w", c.Key, err)
		case res.OK:
			s.claims.Freed(c)
			s.log.WarnContext(ctx, "gave up a claim that nothing uses", "claim", c.Key, "owner", c.Owner)
		}
	}
	return nil
}

// repair takes the claims of one object, and notes in u which those are.
func (s *Server) repair(ctx context.Context, d *resource.Def, it *cache.Item, u usage) error {
	key := d.Key("", it.Key)
	u.objects[key] = it.Rev
	tx := s.claims.Begin(ctx, key)
	defer func() {
		for _, claim := range tx.Keys() {
			u.claims[claim] = true
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
		return fmt.Errorf("write claims: %w", err)
	case !res.OK:
		s.claims.Lost(txn.Conds, res.Now)
		return errClaimLost
	}
	tx.Committed(res.Rev)
	return nil
}
