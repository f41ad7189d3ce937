package etcd

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// worthwhile says how much must be free in the database for it to be written anew.
type worthwhile struct {
	least int64 // bytes
	share int64 // of the whole, in percent
}

// paysByItself is what makes a member defragment its database although nothing is scarce.
var paysByItself = worthwhile{least: 64 << 20, share: 50}

const (
	// turnKey is there while a member defragments: it answers nothing in the meantime, and
	// no other one must do so, too.
	turnKey = "/kemudi/defragment"
	turnTTL = 5 * time.Minute
)

// defragment writes the database anew if that pays, when no other member does.
// Meanwhile nobody relies on the mapping, and this member answers nothing.
func (s *Server) defragment(ctx context.Context, m *member, w worthwhile) error {
	size, used := m.srv.Backend().Size(), m.srv.Backend().SizeInUse()
	if free := size - used; free < w.least || free*100 < size*w.share {
		return nil
	}
	if err := m.disk.check(uint64(used)); err != nil {
		return fmt.Errorf("defragment the database: %w", err)
	}
	if !m.alone() {
		done, err := s.takeTurn(ctx, m)
		if done == nil {
			return err
		}
		defer done()
	}
	start := time.Now()
	s.mapped.Lock()
	err := m.srv.Defragment()
	s.mapped.Unlock()
	if err != nil {
		return fmt.Errorf("defragment the database: %w", err)
	}
	s.o.Log.Info("defragmented the database", "before", size, "after", m.srv.Backend().Size(), "took", time.Since(start))
	return nil
}

// takeTurn makes this member the one that defragments, and hands over what it leads.
// done ends the turn; nil: it is another one's turn. The guard of the quota is not asked:
// what follows makes the room.
func (s *Server) takeTurn(ctx context.Context, m *member) (done func(), _ error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	lease, err := m.client.Grant(ctx, int64(turnTTL/time.Second))
	if err != nil {
		return nil, fmt.Errorf("take the turn to defragment: %w", err)
	}
	done = func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTime)
		defer cancel()
		if _, err := m.client.Revoke(ctx, lease.ID); err != nil {
			s.o.Log.Debug("the turn to defragment ends by itself", "err", err)
		}
	}
	free := clientv3.Compare(clientv3.CreateRevision(turnKey), "=", 0)
	r, err := m.client.Txn(ctx).If(free).Then(clientv3.OpPut(turnKey, m.srv.MemberID().String(), clientv3.WithLease(lease.ID))).Commit()
	if err != nil || !r.Succeeded {
		done()
		if err != nil {
			return nil, fmt.Errorf("take the turn to defragment: %w", err)
		}
		return nil, nil
	}
	if err := m.srv.TryTransferLeadershipOnShutdown(); err != nil {
		s.o.Log.Warn("defragmenting as the leader: nobody took over", "err", err)
	}
	return done, nil
}
