package apiserver

import (
	"context"
	"fmt"

	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/store"
)

// repairClaims takes the claims of objects that have none in the store: those
// that another Kubernetes has written. What two objects claim is left to the
// first, and told of.
func (s *Server) repairClaims(ctx context.Context) error {
	for _, d := range s.o.Defs {
		if d.Commit == nil {
			continue
		}
		c := s.o.Caches.Cache(d)
		if err := s.synced(ctx, c); err != nil {
			return err
		}
		for _, it := range c.List("", nil) {
			if err := s.repair(ctx, d, it); err != nil {
				s.log.WarnContext(ctx, "take claims of a stored object", "resource", d.String(), "key", it.Key, "err", err)
			}
		}
	}
	return nil
}

func (s *Server) repair(ctx context.Context, d *resource.Def, it *cache.Item) error {
	key := d.Key("", it.Key)
	tx := s.claims.Begin(ctx, key)
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
