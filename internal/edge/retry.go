package edge

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/kemudi/kemudi/internal/edge/lines"
	"github.com/kemudi/kemudi/internal/edge/route"
	"github.com/kemudi/kemudi/internal/task"
)

const (
	// firstRetry is how long is waited before a request is sent again, unless its rule says so, and longestRetry how long
	// before one of many times, which are each twice as far apart.
	firstRetry   = 25 * time.Millisecond
	longestRetry = 10 * time.Second
	// unwanted is how much of an answer is read that nobody gets, so that its connection can be kept.
	unwanted = 64 << 10
)

// again says what of a request may be sent again, and when. nil: what has not been sent at all, at once (E2).
type again struct {
	rule *route.Retry
	body []byte
	held bool // all of the body is in body
	next task.Backoff
}

// againFor is that of a rule's action. It reads the body of the request, if that is to be sent again and not large.
func againFor(do *route.Action, r *http.Request) *again {
	if do == nil || do.Retry == nil {
		return nil
	}
	first := firstRetry
	if do.Retry.Backoff > 0 {
		first = time.Duration(do.Retry.Backoff) * time.Millisecond
	}
	g := &again{rule: do.Retry, next: task.Backoff{Initial: first, Max: max(first, longestRetry), Jitter: 0.25}}
	if g.rule.Attempts > 0 {
		g.body, g.held = hold(r)
	}
	return g
}

// ready gives a request the body that it had.
func (g *again) ready(r *http.Request) {
	if g != nil && g.held && len(g.body) > 0 {
		r.Body = io.NopCloser(bytes.NewReader(g.body))
	}
}

// answered says that an answer is not the one that is wanted, and lets go of it.
func (g *again) answered(res *http.Response) bool {
	if g == nil || !g.held || !slices.Contains(g.rule.Codes, res.StatusCode) {
		return false
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, unwanted)) // what is not read of it ends the connection
	_ = res.Body.Close()
	return true
}

// silent says that a request without an answer does no harm when it is sent again.
func (g *again) silent(r *http.Request, err error) bool {
	return g != nil && g.held && errors.Is(err, lines.ErrSilent) && (r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodOptions)
}

// wait waits until a request may be sent again, each time longer, or ctx ends.
func (g *again) wait(ctx context.Context) error {
	if g == nil {
		return nil
	}
	return task.Sleep(ctx, g.next.Next())
}
