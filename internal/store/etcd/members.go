package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	servererrors "go.etcd.io/etcd/server/v3/etcdserver/errors"

	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/task"
)

// Cluster is what a member has to know of the cluster that it joins.
type Cluster struct {
	ID      uint64   `json:"id"`
	Members []Member `json:"members"`
}

// Member is one of the servers that keep the store.
type Member struct {
	ID      uint64 `json:"id"`
	Name    string `json:"name"` // empty until it has started for the first time
	URL     string `json:"url"`
	Learner bool   `json:"learner,omitempty"` // it gets all writes, and counts for no majority
	Leader  bool   `json:"leader,omitempty"`
}

// ErrMember answers changes of members that cannot be.
var ErrMember = errors.New("the members of the store cannot be changed so")

// memberRetry is how often a change is tried that the members do not agree to yet: what
// they wait for tells nobody.
const memberRetry = 100 * time.Millisecond

// here keeps the member that runs in this process until leave is called.
func (s *Server) here(ctx context.Context) (m *member, leave func(), _ error) {
	sp, err := s.enter(ctx)
	if err != nil {
		return nil, nil, err
	}
	return sp.engine.(*member), func() { s.leave(sp) }, nil
}

// Members are those of the cluster as this member knows it. It asks no other.
func (s *Server) Members(ctx context.Context) (Cluster, error) {
	m, leave, err := s.here(ctx)
	if err != nil {
		return Cluster{}, err
	}
	defer leave()
	return m.cluster(), nil
}

// Self is the ID of the member in this process.
func (s *Server) Self(ctx context.Context) (uint64, error) {
	m, leave, err := s.here(ctx)
	if err != nil {
		return 0, err
	}
	defer leave()
	return uint64(m.srv.MemberID()), nil
}

func (m *member) cluster() Cluster {
	c := Cluster{ID: uint64(m.srv.Cluster().ID())}
	leader := m.srv.Leader()
	for _, one := range m.srv.Cluster().Members() {
		at := Member{ID: uint64(one.ID), Name: one.Name, Learner: one.IsLearner, Leader: one.ID == leader}
		if len(one.PeerURLs) > 0 { // ours have one
			at.URL = one.PeerURLs[0]
		}
		c.Members = append(c.Members, at)
	}
	return c
}

// find is the member with an ID.
func (c Cluster) find(id uint64) (Member, bool) {
	i := slices.IndexFunc(c.Members, func(m Member) bool { return m.ID == id })
	if i < 0 {
		return Member{}, false
	}
	return c.Members[i], true
}

// AddLearner adds a member that is to be started with the Cluster returned. It gets all
// writes, and counts for no majority before Promote. One that was added and has never
// started since is not added again.
func (s *Server) AddLearner(ctx context.Context, name, url string) (Member, Cluster, error) {
	m, leave, err := s.here(ctx)
	if err != nil {
		return Member{}, Cluster{}, err
	}
	defer leave()
	if !m.several {
		return Member{}, Cluster{}, fmt.Errorf("%w: this member has no address for others", ErrMember)
	}
	if err := (Peer{Listen: url, CertFile: "-", KeyFile: "-", CAFile: "-"}).check(); err != nil {
		return Member{}, Cluster{}, fmt.Errorf("%w: %w", ErrMember, err)
	}
	urls, err := types.NewURLs([]string{url})
	if err != nil {
		return Member{}, Cluster{}, fmt.Errorf("%w: %w", ErrMember, err)
	}
	now := time.Now() // one ID for all tries
	learner := membership.NewMemberAsLearner(name, urls, "", &now)
	learner.Name = "" // it tells its name by itself: until then it is known not to have started
	var at Member
	err = s.change(ctx, m, "add a member at "+url, func(ctx context.Context) error {
		for _, one := range m.cluster().Members {
			if one.URL != url {
				continue
			}
			if one.Name != "" {
				return fmt.Errorf("%w: member %s (%s) has the address %s; if its data is gone, remove it first", ErrMember, types.ID(one.ID), one.Name, url)
			}
			at = one
			return nil
		}
		if _, err := m.srv.AddMember(ctx, *learner); err != nil && !errors.Is(err, membership.ErrIDExists) {
			return err
		}
		at = Member{ID: uint64(learner.ID), URL: url, Learner: true}
		return nil
	})
	return at, m.cluster(), err
}

// Promote makes a learner a member whose vote counts, as soon as it has caught up.
func (s *Server) Promote(ctx context.Context, id uint64) error {
	m, leave, err := s.here(ctx)
	if err != nil {
		return err
	}
	defer leave()
	return s.change(ctx, m, "promote member "+types.ID(id).String(), func(ctx context.Context) error {
		switch one, ok := m.cluster().find(id); {
		case !ok:
			return fmt.Errorf("%w: there is no member %s", ErrMember, types.ID(id))
		case !one.Learner:
			return nil
		}
		_, err := m.srv.PromoteMember(ctx, id)
		return err
	})
}

// Remove takes a member out of the cluster. It learns of that as soon as it can be
// reached, and its Run ends with ErrRemoved; so does that of this member.
func (s *Server) Remove(ctx context.Context, id uint64) error {
	m, leave, err := s.here(ctx)
	if err != nil {
		return err
	}
	defer leave()
	return s.change(ctx, m, "remove member "+types.ID(id).String(), func(ctx context.Context) error {
		if _, ok := m.cluster().find(id); !ok {
			return nil
		}
		if m.alone() {
			return fmt.Errorf("%w: the last member cannot be removed", ErrMember)
		}
		if id == uint64(m.srv.MemberID()) {
			if err := m.srv.TryTransferLeadershipOnShutdown(); err != nil {
				return err
			}
		}
		_, err := m.srv.RemoveMember(ctx, id)
		if errors.Is(err, servererrors.ErrStopped) && id == uint64(m.srv.MemberID()) {
			return nil
		}
		return err
	})
}

// HandOver has another member lead if this one does.
func (s *Server) HandOver(ctx context.Context) error {
	m, leave, err := s.here(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if err := m.srv.TryTransferLeadershipOnShutdown(); err != nil {
		return fmt.Errorf("hand over the lead of the store: %w", err)
	}
	return nil
}

// notYet are refusals that time heals: members that have not caught up, or have not been
// connected for long enough to be relied upon, or too few of them.
var notYet = []error{
	store.ErrNoMajority,
	servererrors.ErrLearnerNotReady, servererrors.ErrUnhealthy, servererrors.ErrNotEnoughStartedMembers,
	servererrors.ErrNotLeader, servererrors.ErrTimeout, servererrors.ErrTimeoutDueToLeaderFail, servererrors.ErrLeaderChanged,
	servererrors.ErrTimeoutLeaderTransfer, membership.ErrTooManyLearners, errNoAnswer,
}

// change makes a change of the members, again and again while they do not agree to it yet.
func (s *Server) change(ctx context.Context, m *member, doing string, f func(ctx context.Context) error) error {
	retry := task.Backoff{Initial: memberRetry, Max: 10 * memberRetry, Jitter: 0.1}
	for {
		call, cancel, err := m.bound(ctx)
		if err == nil {
			err = because(call, f(call))
			cancel()
		}
		switch {
		case err == nil:
			return nil
		case !oneOf(err, notYet):
			return fmt.Errorf("%s: %w", doing, err)
		}
		if ended := task.Sleep(ctx, retry.Next()); ended != nil {
			return fmt.Errorf("%s: %w: %w", doing, ended, err)
		}
	}
}

// announce tells the others the address of this member if it is another one than before.
func (s *Server) announce(ctx context.Context, m *member) error {
	url := m.o.Peer.advertised()
	self, ok := m.cluster().find(uint64(m.srv.MemberID()))
	if !ok || self.URL == url {
		return nil
	}
	return s.change(ctx, m, "change the address of this member to "+url, func(ctx context.Context) error {
		_, err := m.srv.UpdateMember(ctx, membership.Member{ID: m.srv.MemberID(), RaftAttributes: membership.RaftAttributes{PeerURLs: []string{url}}})
		return err
	})
}
