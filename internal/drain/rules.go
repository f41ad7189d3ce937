package drain

import (
	"context"
	"math"
)

// Rules are what new connections to pods are sent by, as far as they are made of EndpointSlices.
type Rules interface {
	// Rev is up to which revision of EndpointSlices they are true.
	Rev() int64
	// Wait returns when they are true up to a revision, or with an error when ctx ends.
	Wait(ctx context.Context, rev int64) error
}

// All are the rules of a node: what one of them does not know yet, the node does not.
type All []Rules

// Rev is that of who is furthest behind.
func (a All) Rev() int64 {
	rev := int64(math.MaxInt64)
	for _, r := range a {
		rev = min(rev, r.Rev())
	}
	return rev
}

// Wait waits for all of them.
func (a All) Wait(ctx context.Context, rev int64) error {
	for _, r := range a {
		if err := r.Wait(ctx, rev); err != nil {
			return err
		}
	}
	return nil
}
