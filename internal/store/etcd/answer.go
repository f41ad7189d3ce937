package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	servererrors "go.etcd.io/etcd/server/v3/etcdserver/errors"
	"go.etcd.io/raft/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kemudi/kemudi/internal/store"
)

// Etcd has each error twice: as its server knows it, and as its client does.
var (
	tooLarge = []error{rpctypes.ErrRequestTooLarge, servererrors.ErrRequestTooLarge}
	noSpace  = []error{rpctypes.ErrNoSpace, servererrors.ErrNoSpace}
	noLeader = []error{rpctypes.ErrNoLeader, servererrors.ErrNoLeader, raft.ErrProposalDropped}
	// What was read at the time has to be read again.
	leaderChanged = []error{rpctypes.ErrLeaderChanged, servererrors.ErrLeaderChanged}
	unsettled     = []error{
		rpctypes.ErrTimeout, servererrors.ErrTimeout,
		rpctypes.ErrTimeoutDueToLeaderFail, servererrors.ErrTimeoutDueToLeaderFail,
		rpctypes.ErrTimeoutDueToConnectionLost, servererrors.ErrTimeoutDueToConnectionLost,
		rpctypes.ErrLeaderChanged, servererrors.ErrLeaderChanged,
		rpctypes.ErrStopped, servererrors.ErrStopped,
		errNoAnswer,
	}
)

// errNoAnswer ends a call that etcd has not answered within answerTime, or within lostAfter
// of a new leader.
var errNoAnswer = errors.New("the members of the store have not answered in time")

// oneOf reports whether an error is one of some.
func oneOf(err error, list []error) bool {
	for _, e := range list {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// explain turns etcd's errors into those of package store and says what was being done.
func (s *Store) explain(ctx context.Context, doing string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, store.ErrNoMajority), errors.Is(err, store.ErrUnknown):
		return err
	case errors.Is(err, rpctypes.ErrCompacted):
		return store.ErrCompacted
	case errors.Is(err, rpctypes.ErrFutureRev):
		return store.ErrFuture
	case oneOf(err, gone):
		return store.ErrLifeOver
	case oneOf(err, tooLarge):
		return store.ErrTooLarge
	case oneOf(err, noSpace):
		return fmt.Errorf("%w: %s: %w", store.ErrDisk, doing, errFull)
	case errors.Is(err, rpctypes.ErrTooManyOps):
		return fmt.Errorf("%s: %w; start etcd with --max-txn-ops=10000", doing, err)
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	select {
	case <-s.stopped:
		return ErrStopped
	default:
	}
	switch {
	case oneOf(err, noLeader), status.Code(err) == codes.Unavailable, oneOf(err, unsettled):
		return fmt.Errorf("%w: %s: %w", store.ErrNoMajority, doing, err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// fate is explain for a write: what etcd did not answer may have been made nevertheless.
func (s *Store) fate(ctx context.Context, doing string, err error) error {
	if ctx.Err() == nil && (oneOf(err, unsettled) || status.Code(err) == codes.Unavailable && !neverSent(err)) {
		return fmt.Errorf("%w: %s: %w", store.ErrUnknown, doing, err)
	}
	return s.explain(ctx, doing, err)
}

// neverSent says of an answer that there was no connection.
func neverSent(err error) bool { return strings.Contains(err.Error(), "Error while dialing") }
