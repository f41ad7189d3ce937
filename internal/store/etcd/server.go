package etcd

import (
	"cmp"
	"context"
	"errors"
	"expvar"
	"fmt"
	"os"
	"sync"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/kemudi/kemudi/internal/task"
)

// ErrStopped answers everything that is asked of a store that does not run any more.
var ErrStopped = errors.New("the store is not running")

// Server is an etcd server in the process, and the store that it keeps. The
// store's methods may be called before Run: they wait until it is ready.
type Server struct {
	Store
	o       Options
	lock    *os.File
	reopens chan *reopening

	// Held for reading while somebody relies on the database being mapped.
	mapped struct {
		sync.RWMutex
		member *member // nil: it is not
	}
}

// WhileMapped calls f with the file of the database if that is mapped, and keeps it where it is until f
// returns. Its place does not change otherwise: the mapping is made for the whole quota.
// Of several members none promises that: who has fallen behind gets the database of another.
func (s *Server) WhileMapped(f func(file string) error) error {
	s.mapped.RLock()
	defer s.mapped.RUnlock()
	if m := s.mapped.member; m == nil || m.several {
		return nil
	}
	return f(s.o.database())
}

// Scavenge gives back memory that writes have left behind, if it is much, for a server that
// has little to do.
func (s *Server) Scavenge() {
	s.mapped.RLock()
	defer s.mapped.RUnlock()
	if m := s.mapped.member; m != nil {
		m.disk.scavenge()
	}
}

// Size is that of the database, in bytes; 0: it is not open.
func (s *Server) Size() int64 {
	s.mapped.RLock()
	defer s.mapped.RUnlock()
	if m := s.mapped.member; m != nil {
		return m.srv.Backend().Size()
	}
	return 0
}

// setMapped waits for those who rely on the mapping. m is nil when it is about to end.
func (s *Server) setMapped(m *member) {
	s.mapped.Lock()
	defer s.mapped.Unlock()
	s.mapped.member = m
}

// Writable says in a store.ErrDisk why the disk takes no writes at present.
func (s *Server) Writable(ctx context.Context) error {
	sp, err := s.enter(ctx)
	if err != nil {
		return err
	}
	defer s.leave(sp)
	return sp.room()
}

// New takes the data directory for this process. It fails at once with
// ErrInUse if another process has it. Call Run, or the directory stays taken.
func New(o Options) (*Server, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	lock, err := lockDir(o.Dir)
	if err != nil {
		return nil, err
	}
	o.questions = newQuestions()
	s := &Server{o: o, lock: lock, reopens: make(chan *reopening)}
	s.init()
	return s, nil
}

// Run serves the store until ctx ends, or the member is removed from its cluster
// (ErrRemoved). It may be called once.
func (s *Server) Run(ctx context.Context) error { return s.run(ctx, nil) }

// run does so, from the way how on that its etcd is opened first; nil: as the directory has it.
func (s *Server) run(ctx context.Context, how *reopening) error {
	defer close(s.stopped) // last: who has heard of it may open the directory
	defer s.lock.Close()
	o := s.o
	for {
		next, err := s.serve(ctx, o, how)
		switch {
		case next != nil:
			how, next.before = next, o
			if next.change != nil {
				next.change(&o)
			}
		case how == nil || how.answered || ctx.Err() != nil:
			return err
		default:
			// What was asked for cannot be: as it was before, it has run.
			how.answer(err)
			o, how = how.before, nil
		}
	}
}

// serve serves the store until ctx ends, something fails, or it is to be opened anew.
func (s *Server) serve(ctx context.Context, o Options, how *reopening) (next *reopening, _ error) {
	forced := how != nil && how.forced
	m, err := o.open(forced)
	if err != nil {
		return nil, err
	}
	defer m.close()
	s.setMapped(m)
	defer s.setMapped(nil)
	if err := m.belongs(); err != nil {
		return nil, err
	}
	// Who was killed at its first start may have its members in its log alone.
	if forced || len(m.srv.Cluster().Members()) <= 1 {
		err := s.lead(ctx, m)
		if err := cmp.Or(m.belongs(), err); err != nil { // the log may tell that as well
			return nil, err
		}
	}
	if m.alone() {
		// Nobody has to be there for it, and who is added next asks at that address.
		if err := s.announce(ctx, m); err != nil {
			return nil, err
		}
	}
	m.disk.back()
	s.use(m)
	defer s.retire(ctx)
	how.answer(nil)

	g := task.NewGroup(ctx)
	g.Go("etcd", func(ctx context.Context) error {
		select {
		case err := <-m.etcd.Err():
			return fmt.Errorf("serve etcd: %w", err)
		case <-m.srv.StopNotify():
			return o.stoppedByItself(m)
		case next = <-s.reopens:
			return errReopens
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	g.Go("ready", func(ctx context.Context) error { return s.takePart(ctx, m) })
	if m.several {
		g.Go("leaders", m.followLeaders)
	}
	g.Go("compaction", func(ctx context.Context) error { return s.compactOld(ctx, m) })
	g.Go("space", func(ctx context.Context) error { return s.makeSpace(ctx, m) })
	err = g.Wait()
	if next != nil {
		return next, nil
	}
	return nil, err
}

// takePart waits until the member takes part in its cluster, and sees to it that the others
// know its address.
func (s *Server) takePart(ctx context.Context, m *member) error {
	select {
	case <-m.srv.ReadyNotify():
	case <-ctx.Done():
		return nil
	}
	if err := s.announce(ctx, m); err != nil && ctx.Err() == nil {
		s.o.Log.Warn("the other members do not know this one's new address", "err", err)
	}
	select {
	case <-s.ready:
	default:
		close(s.ready)
	}
	return nil
}

// starting is held by the one server of a process, outside of tests the only one, whose
// state in raft etcd tells.
var starting = make(chan struct{}, 1)

// lead waits until the server is ready to serve. A single member has no reason
// to wait for its election timer: it gets the message by which a raft leader
// hands over its leadership, and stands for election. The message is ignored
// while the member still applies changes of its membership, so it is repeated.
// Who finds in its log that it is not alone has to wait for the others, and does not do
// so here. A leader whose log ends before an entry that the database has has lost some of it.
func (s *Server) lead(ctx context.Context, m *member) error {
	select {
	case starting <- struct{}{}:
		defer func() { <-starting }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	kick := time.NewTicker(2 * time.Millisecond)
	defer kick.Stop()
	id := uint64(m.srv.MemberID())
	for {
		select {
		case <-m.srv.ReadyNotify():
			return nil
		case <-m.srv.StopNotify():
			return errors.New("etcd has stopped before it was ready")
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-kick.C:
		}
		st := raftStatus(id)
		leads := st.RaftState == raft.StateLeader && uint64(m.srv.Leader()) == id
		if last := st.Progress[id].Match; leads && last > 0 && max(last, m.srv.CommittedIndex()) < m.applied {
			return m.o.cutOff(last, m.applied)
		}
		switch {
		case !rested(st):
		case !m.alone():
			return nil
		default:
			msg := &raftpb.Message{Type: raftpb.MsgTimeoutNow.Enum(), From: &id, To: &id}
			if err := m.srv.Process(ctx, msg); err != nil {
				return fmt.Errorf("start the election: %w", err)
			}
		}
	}
}

// raftStatus is that of a raft member, empty while there is none: etcd tells it only
// by a variable of the process.
func raftStatus(id uint64) raft.Status {
	if v, ok := expvar.Get("raft.status").(expvar.Func); ok {
		if st, ok := v.Value().(raft.Status); ok && st.ID == id {
			return st
		}
	}
	return raft.Status{}
}

// rested reports whether a raft member has no leader and has noted all entries
// of its log as applied. Until then it must not be made to stand for election:
// it would look through the entries that it has not noted yet, and panic if
// the server, which may have applied them already, has dropped them from memory.
func rested(st raft.Status) bool {
	return st.ID != 0 && st.Lead == 0 && st.Applied >= st.GetCommit()
}

// compactOld forgets what is older than the history to be kept. In a cluster
// only the leader does. An idle store is left alone.
func (s *Server) compactOld(ctx context.Context, m *member) error {
	last := m.srv.KV().Rev()
	for {
		if err := task.Sleep(ctx, s.o.History); err != nil {
			return nil // it is time to end
		}
		rev := last
		last = m.srv.KV().Rev()
		if last == rev {
			continue
		}
		if m.srv.Leader() == m.srv.MemberID() {
			if err := s.Compact(ctx, rev); err != nil && ctx.Err() == nil {
				s.o.Log.Warn("old revisions were not compacted", "rev", rev, "err", err)
			}
		}
		m.space.compacted()
	}
}
