package etcd

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/raft/v3"
)

// Who reads must know how far the log of the cluster is. Etcd has the leader ask a majority whether
// it still leads, and then answer: two or four ways through raft, one question at a time. Of three
// members, the leader and one who follows it are a majority by themselves. So either asks the other
// one directly, and looks then whether it is in the same term itself (decision 057).

// Standing is what a member says to another one.
type Standing struct {
	Member uint64 // who says so
	// Leads says that the member leads, knows what was agreed upon before its term, and that
	// it and the other one are a majority of those who vote.
	Leads bool
	// Follows is the leader whom it follows; 0: none.
	Follows uint64
	// Term is the member's.
	Term uint64
	// Index is how far the log is agreed upon as it knows, if it leads no less than when the question came.
	Index uint64
}

// standingOf is the standing of a member with a raft status. applied is the term of an entry
// that it has applied.
func standingOf(st raft.Status, applied, other uint64) Standing {
	s := Standing{Member: st.ID, Term: st.GetTerm(), Index: st.GetCommit()}
	switch st.RaftState {
	case raft.StateFollower:
		s.Follows = st.Lead
	case raft.StateLeader:
		voters := st.Config.Voters
		_, own := voters[0][st.ID]
		_, others := voters[0][other]
		joint := len(voters[1]) > 0 || len(st.Config.LearnersNext) > 0
		s.Leads = applied == s.Term && own && others && other != st.ID && !joint && len(voters[0]) <= 3
	}
	return s
}

// agreed is how far the log was agreed upon, for a member that has asked another one: if they are the
// leader and one who follows it, neither has gone on to another term since the question, as what was
// said and the status now say.
func (s Standing) agreed(now raft.Status, applied uint64) (index uint64, ok bool) {
	own := standingOf(now, applied, s.Member)
	switch {
	case own.Term != s.Term:
		return 0, false
	case s.Leads && own.Follows == s.Member:
		return s.Index, true
	case own.Leads && s.Follows == now.ID:
		return own.Index, true
	}
	return 0, false
}

// Other is who is asked.
type Other struct {
	Asker, Asked uint64   // members
	Peers        []string // the URLs by which the asked one is known to others
}

// Ask asks another member for its [Server.Standing].
type Ask func(ctx context.Context, of Other) (Standing, error)

// Standing answers another member.
func (s *Server) Standing(ctx context.Context, asker uint64) (Standing, error) {
	sp, err := s.enter(ctx)
	if err != nil {
		return Standing{}, err
	}
	defer s.leave(sp)
	m, ok := sp.engine.(*member)
	if !ok || !m.several {
		return Standing{}, nil
	}
	return standingOf(raftStatus(uint64(m.srv.MemberID())), m.srv.Term(), asker), nil
}

// AskOthers has reads of other members' writes ask another member by a function, from now on.
func (s *Server) AskOthers(ask Ask) { s.o.questions.ask.Store(&ask) }

// Questions is how many questions to other members had an answer that holds since the start, and how
// many were left to raft.
func (s *Server) Questions() (held, left uint64) {
	return s.o.questions.held.Load(), s.o.questions.left.Load()
}

const (
	// questionTime is how long the other one may take for its answer. Then etcd asks, by raft.
	questionTime = 300 * time.Millisecond
	// questionPause is for how long nobody is asked after a question without an answer that holds.
	questionPause = time.Second
)

// questions to other members. The zero value has nobody to ask.
type questions struct {
	ask    atomic.Pointer[Ask]
	held   atomic.Uint64 // how many had an answer that holds
	left   atomic.Uint64 // how many were left to raft
	paused atomic.Int64  // until when, in nanoseconds since began
	began  time.Time
	place  chan struct{} // has room for the one that is under way: those who come meanwhile share the next

	mu struct {
		sync.Mutex
		next *question // not asked yet; nil: nobody waits
	}
}

// question is one to a leader, and those who wait for its answer.
type question struct {
	answered chan struct{}
	index    uint64
	holds    bool
}

func newQuestions() *questions {
	return &questions{began: time.Now(), place: make(chan struct{}, 1)}
}

// index is how far the log of the cluster was when it was called, or later; false if that
// is to be found out by raft.
func (m *member) index(ctx context.Context) (uint64, bool) {
	q := m.o.questions
	ask := q.ask.Load()
	if ask == nil || !m.several || q.pausing() {
		return 0, false
	}
	return q.share(ctx, func() (uint64, bool) { return m.inquire(ctx, *ask) })
}

// pausing reports whether nobody is asked now.
func (q *questions) pausing() bool {
	return time.Since(q.began) < time.Duration(q.paused.Load())
}

// share returns what a question answers that begins after the call: the caller's own, or that
// of somebody who came before.
func (q *questions) share(ctx context.Context, inquire func() (uint64, bool)) (uint64, bool) {
	q.mu.Lock()
	one := q.mu.next
	first := one == nil
	if first {
		one = &question{answered: make(chan struct{})}
		q.mu.next = one
	}
	q.mu.Unlock()
	if first {
		q.place <- struct{}{} // others wait for this one too; it is left within questionTime
		runtime.Gosched()     // those who are about to come share it, which costs two processes less
		q.mu.Lock()
		q.mu.next = nil // who comes now comes after the question
		q.mu.Unlock()
		one.index, one.holds = inquire()
		<-q.place
		if one.holds {
			q.held.Add(1)
		} else {
			q.left.Add(1)
			q.paused.Store(int64(time.Since(q.began) + questionPause))
		}
		close(one.answered)
	}
	select {
	case <-one.answered:
		return one.index, one.holds
	case <-ctx.Done():
		return 0, false
	}
}

// inquire asks the leader, and a leader one of the others. It is asked for others too, so that it does
// not end with ctx.
func (m *member) inquire(ctx context.Context, ask Ask) (index uint64, ok bool) {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), questionTime, errNoAnswer)
	defer cancel()
	at := m.partner()
	if at == nil {
		return 0, false
	}
	defer func() {
		if !ok {
			m.partners.Add(1)
		}
	}()
	of := Other{Asker: uint64(m.srv.MemberID()), Asked: uint64(at.ID), Peers: at.PeerURLs}
	s, err := ask(ctx, of)
	if err != nil {
		return 0, false
	}
	return s.agreed(raftStatus(of.Asker), m.srv.Term())
}

// partner is the leader, and of a leader who is asked in its place: another one of those who vote after
// each time that nobody was agreed with. Nil: there is none.
func (m *member) partner() *membership.Member {
	lead, self := m.srv.Leader(), m.srv.MemberID()
	if lead != self {
		return m.srv.Cluster().Member(lead) // nil, if there is no leader
	}
	others := slices.DeleteFunc(m.srv.Cluster().Members(), func(one *membership.Member) bool { return one.IsLearner || one.ID == self })
	if len(others) == 0 {
		return nil
	}
	return others[int(m.partners.Load())%len(others)]
}

// appliedTo waits until this member has come so far.
func (m *member) appliedTo(ctx context.Context, index uint64) error {
	select {
	case <-m.srv.ApplyWait(index):
		return nil
	case <-m.srv.StopNotify():
		return ErrStopped
	case <-ctx.Done():
		return ctx.Err()
	}
}
