package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/task"
)

// errFull says what to do about a database that has reached its quota.
var errFull = errors.New("the database has reached its quota; delete what is not needed")

// quotaMargin: our own guard refuses writes when only this part of the quota is left. Etcd
// by itself would make the write and then call it refused.
const quotaMargin = 50

// space refuses writes before the database reaches its quota, so that etcd's alarm,
// which stops the writes of all members until somebody ends it, is not raised. It asks for
// what makes room.
type space struct {
	limit   int64
	size    func() int64
	full    chan struct{} // a token asks for relief
	history chan struct{} // a token says that history was forgotten
}

func newSpace(quota int64, size func() int64) *space {
	return &space{limit: quota - quota/quotaMargin, size: size, full: make(chan struct{}, 1), history: make(chan struct{}, 1)}
}

// take refuses n bytes that do not fit. What frees space has n 0.
func (s *space) take(n int) error {
	if n == 0 {
		return nil
	}
	err := s.check(n)
	if err != nil {
		s.ask()
	}
	return err
}

func (s *space) check(n int) error {
	if s.size()+int64(n) < s.limit {
		return nil
	}
	return fmt.Errorf("%w: %w", store.ErrDisk, errFull)
}

// ask asks for relief.
func (s *space) ask() { put(s.full) }

// compacted says that history was forgotten.
func (s *space) compacted() { put(s.history) }

// put leaves a token that is taken once, however often it is left.
func put(tokens chan<- struct{}) {
	select {
	case tokens <- struct{}{}:
	default:
	}
}

// reliefPause is the least time between two attempts to make space.
const reliefPause = 5 * time.Second

// makeSpace gives back what the database does not need: all that can be had when it is full,
// and what pays when history was forgotten.
func (s *Server) makeSpace(ctx context.Context, m *member) error {
	if m.alarmed(ctx) {
		m.space.ask()
	}
	for {
		var err error
		select {
		case <-m.space.full:
			err = s.relieve(ctx, m)
		case <-m.space.history:
			err = s.defragment(ctx, m, paysByItself)
			if m.alarmed(ctx) || m.space.check(0) != nil { // another member has raised it, or nobody writes any more
				m.space.ask()
			}
		case <-ctx.Done():
			return nil
		}
		if err != nil && ctx.Err() == nil {
			s.o.Log.Warn("the database keeps space that it does not need", "err", err)
		}
		if err := task.Sleep(ctx, reliefPause); err != nil {
			return nil
		}
	}
}

// relieve makes space when the database is full: it forgets history, gives back pages that
// are free, and ends the alarm that etcd may have raised.
func (s *Server) relieve(ctx context.Context, m *member) error {
	// The physical end of what is forgotten is waited for: before, there is nothing to give back.
	_, err := m.client.Compact(ctx, m.srv.KV().Rev(), clientv3.WithCompactPhysical())
	if err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
		return fmt.Errorf("forget history: %w", err)
	}
	if err := s.defragment(ctx, m, worthwhile{least: 0, share: 10}); err != nil {
		return err
	}
	if err := m.space.check(0); err != nil {
		return err
	}
	return m.endAlarm(ctx)
}

// alarms are those that have stopped all writes but the ones that free space, whichever
// member has raised them; none while nobody answers. They are asked for as a client would:
// what the server itself has in memory may be replaced under a reader.
func (m *member) alarms(ctx context.Context) (list []*clientv3.AlarmMember) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	answer, err := m.client.AlarmList(ctx)
	if err != nil {
		return nil
	}
	for _, a := range answer.Alarms {
		if a.Alarm == etcdserverpb.AlarmType_NOSPACE {
			list = append(list, (*clientv3.AlarmMember)(a))
		}
	}
	return list
}

// alarmed reports whether there is such an alarm.
func (m *member) alarmed(ctx context.Context) bool { return len(m.alarms(ctx)) > 0 }

// endAlarm ends etcd's alarms about the quota.
func (m *member) endAlarm(ctx context.Context) error {
	for _, a := range m.alarms(ctx) {
		ctx, cancel := context.WithTimeout(ctx, answerTime)
		_, err := m.client.AlarmDisarm(ctx, a)
		cancel()
		if err != nil {
			return fmt.Errorf("end the alarm about the quota: %w", err)
		}
	}
	return nil
}
