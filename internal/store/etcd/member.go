package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	etcdlease "go.etcd.io/etcd/server/v3/lease"
	"go.etcd.io/raft/v3"

	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/task"
)

const (
	// answerTime is how long a member of several may take for an answer. It is longer than
	// an election and what is to be written first after one.
	answerTime = 5 * time.Second
	// electionPatience is how long a call waits for a leader: an election is over by then
	// if there is a majority.
	electionPatience = 3 * time.Second
	// leaderRetry is the time to the second try of a write that there was no leader for.
	leaderRetry = 5 * time.Millisecond
)

// member is the etcd in this process.
type member struct {
	o      Options
	etcd   *embed.Etcd
	srv    *etcdserver.EtcdServer
	client *clientv3.Client
	disk   *diskGuard
	space  *space
	// flights are the writes under way, if there are several members.
	flights flights
	// applied is the last entry of the log that the database had when it was opened.
	applied uint64
	// several says that others may be members as well: then an answer can fail to come.
	several bool
	// forced says that it is made a cluster of one, whatever the database has.
	forced bool
	// partners counts how often nobody was agreed with on how far the log is.
	partners atomic.Uint32
	// leaderless says that a call has waited for a leader in vain, and none has come since:
	// the next one does not wait.
	leaderless atomic.Bool
}

var _ engine = (*member)(nil)

func (o Options) newMember(e *embed.Etcd) *member {
	m := &member{o: o, etcd: e, srv: e.Server, client: v3client.New(e.Server), several: o.Peer.set()}
	commit := func() { m.srv.Backend().ForceCommit() }
	m.disk = &diskGuard{dir: o.dir(), db: o.database(), log: o.Log, reserve: reserveBytes, commit: commit}
	m.space = newSpace(o.Quota, func() int64 { return m.srv.Backend().Size() })
	return m
}

func (m *member) api() *clientv3.Client { return m.client }

// alone reports whether there is nobody else who could have to agree.
func (m *member) alone() bool { return len(m.srv.Cluster().Members()) == 1 }

// belongs refuses to go on with data of others that this member cannot reach, or has been
// parted from.
func (m *member) belongs() error {
	if n := len(m.srv.Cluster().Members()); n > 1 && !m.several && !m.forced {
		return fmt.Errorf("%w: %s is of a cluster of %d members, and this server has no address for the others; give it one, or make a cluster of one of it", ErrMember, m.o.dir(), n)
	}
	if c, ok := m.srv.Cluster().(*membership.RaftCluster); ok && c.IsIDRemoved(m.srv.MemberID()) {
		return m.o.removed()
	}
	return nil
}

func (m *member) behind() bool { return false }

func (m *member) take(size, added int) error {
	if err := m.disk.take(size); err != nil {
		return err
	}
	return m.space.take(added)
}

func (m *member) room() error { return errors.Join(m.disk.check(0), m.space.check(0)) }

// bound bounds a call if others have to answer.
func (m *member) bound(ctx context.Context) (context.Context, context.CancelFunc, error) {
	if !m.several {
		return ctx, func() {}, nil
	}
	if err := m.led(ctx); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, answerTime, errNoAnswer)
	return ctx, cancel, nil
}

// because says by whose will a call has ended.
func because(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), errNoAnswer) {
		return errNoAnswer
	}
	return err
}

func (m *member) txn(ctx context.Context, t *etcdserverpb.TxnRequest) (*etcdserverpb.TxnResponse, error) {
	ctx, cancel, err := m.bound(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	if m.several {
		var end func()
		ctx, end = m.flights.begin(ctx)
		defer end()
	}
	retry := task.Backoff{Initial: leaderRetry, Max: 10 * leaderRetry, Jitter: 0.1}
	for {
		r, err := m.srv.Txn(ctx, t)
		if oneOf(err, noSpace) {
			m.space.ask()
		}
		// The leader has just gone, or hands over: nothing was written.
		if !m.several || !errors.Is(err, raft.ErrProposalDropped) || task.Sleep(ctx, retry.Next()) != nil {
			return r, because(ctx, err)
		}
	}
}

// rev asks the leader how far the log is, and waits until this member has come so far. It is
// asked once for all who wait.
func (m *member) rev(ctx context.Context) (int64, error) {
	index, ok := m.index(ctx)
	if ok && m.srv.AppliedIndex() >= index {
		return m.srv.KV().Rev(), nil // as a rule: then nothing has to be bounded, which costs more than the rest
	}
	ctx, cancel, err := m.bound(ctx)
	if err != nil {
		return 0, err
	}
	defer cancel()
	if ok {
		err = m.appliedTo(ctx, index)
	} else {
		err = m.srv.LinearizableReadNotify(ctx)
	}
	if err != nil {
		return 0, because(ctx, err)
	}
	return m.srv.KV().Rev(), nil
}

func (m *member) keepAlive(ctx context.Context, id clientv3.LeaseID) error {
	_, err := m.srv.LeaseRenew(ctx, etcdlease.LeaseID(id))
	return err
}

func (m *member) watch(ctx context.Context, prefix string, from int64) (stream, error) {
	st := m.srv.Watchable().NewWatchStream()
	if _, err := st.Watch(ctx, clientv3.AutoWatchID, []byte(prefix), []byte(clientv3.GetPrefixRangeEnd(prefix)), from); err != nil {
		st.Close()
		return nil, err
	}
	return st, nil
}

// led waits a little for a leader. Without a majority there is none.
func (m *member) led(ctx context.Context) error {
	changed := m.srv.LeaderChangedNotify()
	if m.srv.Leader() != 0 {
		m.leaderless.Store(false)
		return nil
	}
	if m.leaderless.Load() {
		return m.noLeader()
	}
	wait := time.NewTimer(electionPatience)
	defer wait.Stop()
	select {
	case <-changed:
		return nil
	case <-wait.C:
		if m.srv.Leader() != 0 {
			return nil
		}
		m.leaderless.Store(true)
		return m.noLeader()
	case <-m.srv.StopNotify():
		return ErrStopped
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (m *member) noLeader() error {
	return fmt.Errorf("%w: member %s knows of no leader among %d members; check that the other servers run and can be reached", store.ErrNoMajority, m.srv.MemberID(), len(m.srv.Cluster().Members()))
}

// close ends the etcd. A leader hands over first.
func (m *member) close() {
	_ = m.client.Close() // it has no connection
	m.etcd.Close()
}
