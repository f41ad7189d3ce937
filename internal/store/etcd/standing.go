package etcd

import (
	"context"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3"
)

// Who reads at a member that does not lead must know how far the log of the cluster is. Etcd
// has the leader ask a majority whether it still leads, and then answer: four ways through
// raft, one question at a time. Of three members, the leader and who asks are a majority by
// themselves. So a member asks the leader directly, and looks then whether it is in the
// leader's term itself (decision 057).

// Standing is what a member says to another one that takes it for the leader.
type Standing struct {
	// Confirms says that the member leads, knows what was agreed upon before its term, and that
	// it and the other one are a majority of those who vote.
	Confirms bool `json:"confirms"`
	// Term is the leader's.
	Term uint64 `json:"term"`
	// Index is how far the log is agreed upon, no less than when the question came.
	Index uint64 `json:"index"`
}

// standingOf is the standing of a member with a raft status. applied is the term of an entry
// that it has applied.
func standingOf(st raft.Status, applied, asker uint64) Standing {
	voters := st.Config.Voters
	_, own := voters[0][st.ID]
	_, others := voters[0][asker]
	joint := len(voters[1]) > 0 || len(st.Config.LearnersNext) > 0
	return Standing{
		Confirms: st.RaftState == raft.StateLeader && applied == st.GetTerm() && own && others && asker != st.ID && !joint && len(voters[0]) <= 3,
		Term:     st.GetTerm(), Index: st.GetCommit(),
	}
}

// holds reports whether what a leader has said is so, for the member who has asked it: it has
// not gone on to another term since it asked, as its status says now.
func (s Standing) holds(now raft.Status, leader uint64) bool {
	return s.Confirms && now.RaftState == raft.StateFollower && now.Lead == leader && now.GetTerm() == s.Term
}

// Leader is who is asked.
type Leader struct {
	Asker uint64 // the member that asks
	Hosts []string
}

// Ask asks a leader for its [Server.Standing].
type Ask func(ctx context.Context, of Leader) (Standing, error)

// Standing answers another member that takes this one for the leader.
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

// AskLeader has reads of other members' writes ask the leader by a function, from now on.
func (s *Server) AskLeader(ask Ask) { s.o.questions.ask.Store(&ask) }

const (
	// questionTime is how long the leader may take for its answer. Then etcd asks, by raft.
	questionTime = 300 * time.Millisecond
	// questionPause is for how long nobody is asked after a question without an answer that holds.
	questionPause = time.Second
	// questionsAtOnce is how many questions are under way at a time. Those who come meanwhile
	// share the next one.
	questionsAtOnce = 3
)

// questions to leaders. The zero value has nobody to ask.
type questions struct {
	ask    atomic.Pointer[Ask]
	paused atomic.Int64 // until when, in nanoseconds since began
	began  time.Time
	places chan struct{}

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
	return &questions{began: time.Now(), places: make(chan struct{}, questionsAtOnce)}
}

// index is how far the log of the cluster was when it was called, or later; false if that
// is to be found out by raft.
func (m *member) index(ctx context.Context) (uint64, bool) {
	q := m.o.questions
	ask := q.ask.Load()
	if ask == nil || !m.several || q.pausing() {
		return 0, false
	}
	if lead := m.srv.Leader(); lead == 0 || lead == m.srv.MemberID() {
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
		q.places <- struct{}{} // others wait for this one too; each place is left within questionTime
		q.mu.Lock()
		q.mu.next = nil // who comes now comes after the question
		q.mu.Unlock()
		one.index, one.holds = inquire()
		<-q.places
		if !one.holds {
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

// inquire asks the leader. It is asked for others too, so that it does not end with ctx.
func (m *member) inquire(ctx context.Context, ask Ask) (uint64, bool) {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), questionTime, errNoAnswer)
	defer cancel()
	lead := m.srv.Leader()
	at := m.srv.Cluster().Member(lead)
	if lead == 0 || at == nil {
		return 0, false
	}
	of := Leader{Asker: uint64(m.srv.MemberID())}
	for _, peer := range at.PeerURLs {
		if u, err := url.Parse(peer); err == nil && !slices.Contains(of.Hosts, u.Hostname()) {
			of.Hosts = append(of.Hosts, u.Hostname())
		}
	}
	s, err := ask(ctx, of)
	if err != nil {
		return 0, false
	}
	return s.Index, s.holds(raftStatus(of.Asker), uint64(lead))
}

// appliedTo waits until this member has come so far.
func (m *member) appliedTo(ctx context.Context, index uint64) error {
	if m.srv.AppliedIndex() >= index {
		return nil
	}
	select {
	case <-m.srv.ApplyWait(index):
		return nil
	case <-m.srv.StopNotify():
		return ErrStopped
	case <-ctx.Done():
		return ctx.Err()
	}
}
