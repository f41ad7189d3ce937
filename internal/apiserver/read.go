package apiserver

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/apiserver/call"
	"github.com/kemudi/kemudi/internal/cache"
)

// get reads one object. rev is the resourceVersion parameter: empty for the
// newest state (A3), "0" for what is at hand, otherwise at least that revision.
func (s *Server) get(ctx context.Context, c *call.Call, rev string) (*cache.Item, error) {
	if err := s.freshEnough(ctx, c, rev); err != nil {
		return nil, err
	}
	it := c.Resource.Cache.Get(c.CacheKey())
	if it == nil {
		return nil, c.NotFound()
	}
	return it, nil
}

// futureWait is how long a read waits for a revision that is not there yet.
const futureWait = 3 * time.Second

// freshEnough waits until the cache may answer a read with the resourceVersion.
func (s *Server) freshEnough(ctx context.Context, c *call.Call, rev string) error {
	if rev == "" {
		return s.caughtUp(ctx, c.Resource.Cache)
	}
	least, err := parseRevision(rev)
	if err != nil {
		return err
	}
	if err := s.synced(ctx, c.Resource.Cache); err != nil {
		return err
	}
	if c.Resource.Cache.Rev() >= least {
		return nil
	}
	wait, cancel := context.WithTimeout(ctx, futureWait)
	defer cancel()
	if err := c.Resource.Cache.WaitRev(wait, least); err == nil || ctx.Err() != nil {
		return err
	}
	return tooLarge(least, c.Resource.Cache.Rev())
}

// tooLarge says that a client knows of a revision that the server does not.
func tooLarge(asked, current int64) error {
	err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", asked, current), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"}}
	return err
}
