package etcd

import (
	"context"
	"errors"
	"expvar"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
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
	o    Options
	lock *os.File

	// Held for reading while somebody relies on the database being mapped.
	mapped struct {
		sync.RWMutex
		now bool
	}
}

// Database is the file that the store is kept in.
func (s *Server) Database() string { return filepath.Join(s.o.member(), "snap", "db") }

// WhileMapped calls f if the database is mapped, and keeps it where it is until f
// returns. Its place does not change while the server runs: the mapping is made
// for the whole quota, and nothing defragments the database.
func (s *Server) WhileMapped(f func() error) error {
	s.mapped.RLock()
	defer s.mapped.RUnlock()
	if !s.mapped.now {
		return nil
	}
	return f()
}

// Scavenge gives back memory that writes have left behind, if it is much, for a server that
// has little to do.
func (s *Server) Scavenge() {
	_ = s.WhileMapped(func() error { // which does not fail by itself
		select {
		case <-s.ready:
			s.disk.scavenge()
		default: // it has not begun
		}
		return nil
	})
}

// setMapped waits for those who rely on the mapping.
func (s *Server) setMapped(now bool) {
	s.mapped.Lock()
	defer s.mapped.Unlock()
	s.mapped.now = now
}

// Writable says in a store.ErrDisk why the disk takes no writes at present.
func (s *Server) Writable(ctx context.Context) error {
	if _, err := s.open(ctx); err != nil {
		return err
	}
	return s.disk.check(0)
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
	s := &Server{o: o, lock: lock}
	s.init()
	return s, nil
}

// Ready is closed when the store can be read and written.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Run serves the store until ctx ends. It may be called once.
func (s *Server) Run(ctx context.Context) error {
	defer s.lock.Close()
	defer close(s.stopped)
	c, err := s.o.config()
	if err != nil {
		return err
	}
	if err := s.o.clearStillborn(); err != nil {
		return err
	}
	applied, err := s.o.checkFiles()
	if err != nil {
		return err
	}
	e, err := s.o.start(c)
	if err != nil {
		return err
	}
	defer e.Close()
	s.setMapped(true)
	defer s.setMapped(false)
	if err := s.o.lead(ctx, e.Server, applied); err != nil {
		return err
	}
	s.disk = &diskGuard{dir: c.Dir, db: s.Database(), log: s.o.Log, reserve: reserveBytes, commit: e.Server.Backend().ForceCommit}
	s.disk.back()
	s.client, s.server = v3client.New(e.Server), e.Server
	defer s.client.Close()
	close(s.ready)

	g := task.NewGroup(ctx)
	g.Go("etcd", func(ctx context.Context) error {
		select {
		case err := <-e.Err():
			return fmt.Errorf("serve etcd: %w", err)
		case <-e.Server.StopNotify():
			return errors.New("etcd has stopped by itself")
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	g.Go("compaction", func(ctx context.Context) error { return s.compactOld(ctx, e.Server) })
	return g.Wait()
}

// lead waits until the server is ready to serve. A single member has no reason
// to wait for its election timer: it gets the message by which a raft leader
// hands over its leadership, and stands for election. The message is ignored
// while the member still applies changes of its membership, so it is repeated.
// A leader whose log ends before entry applied has lost some of it.
func (o Options) lead(ctx context.Context, srv *etcdserver.EtcdServer, applied uint64) error {
	kick := time.NewTicker(2 * time.Millisecond)
	defer kick.Stop()
	id := uint64(srv.MemberID())
	for {
		select {
		case <-srv.ReadyNotify():
			return nil
		case <-srv.StopNotify():
			return errors.New("etcd has stopped before it was ready")
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-kick.C:
		}
		st := status(id)
		leads := st.RaftState == raft.StateLeader && uint64(srv.Leader()) == id
		if last := st.Progress[id].Match; leads && last > 0 && max(last, srv.CommittedIndex()) < applied {
			return o.cutOff(last, applied)
		}
		if len(srv.Cluster().Members()) == 1 && rested(st) {
			m := &raftpb.Message{Type: raftpb.MsgTimeoutNow.Enum(), From: &id, To: &id}
			if err := srv.Process(ctx, m); err != nil {
				return fmt.Errorf("start the election: %w", err)
			}
		}
	}
}

// status is that of a raft member, empty while there is none: etcd tells it only
// by a variable of the process.
func status(id uint64) raft.Status {
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
func (s *Server) compactOld(ctx context.Context, srv *etcdserver.EtcdServer) error {
	last := srv.KV().Rev()
	for {
		if err := task.Sleep(ctx, s.o.History); err != nil {
			return nil // it is time to end
		}
		rev := last
		last = srv.KV().Rev()
		if last == rev || srv.Leader() != srv.MemberID() {
			continue
		}
		if err := s.Compact(ctx, rev); err != nil && ctx.Err() == nil {
			s.o.Log.Warn("old revisions were not compacted", "rev", rev, "err", err)
		}
	}
}
