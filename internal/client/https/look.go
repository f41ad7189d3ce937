package https

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"
)

// How servers are looked at where there is a choice.
const (
	silence      = time.Second      // without a word while a call waits: is the server still there?
	idleSilence  = 12 * time.Second // the same while there are only watches: more than lies between the leases of a node
	probeTimeout = time.Second
	homeAfter    = 5 * time.Minute // a server is returned to so long after it was left at least, and after three times that at most
)

// look leaves a server that hangs or is not ready for one that is, and returns, some time
// later, to the one that comes first in the link's order: so servers that come back get
// their share of clients, and not all of them at once. It runs until ctx ends.
func (t *Transport) look(ctx context.Context) error {
	next := time.NewTimer(0)
	home := time.NewTimer(homeAfter + rand.N(2*homeAfter))
	defer next.Stop()
	defer home.Stop()
	for {
		select {
		case <-t.servers.wake:
		case <-next.C:
		case <-home.C:
			t.goHome(ctx)
			home.Reset(homeAfter + rand.N(2*homeAfter))
		case <-ctx.Done():
			return nil
		}
		at, due := t.due()
		if at != nil && !due.After(time.Now()) {
			t.check(ctx, at)
			due = time.Now().Add(silence)
		}
		if at == nil {
			next.Stop()
		} else {
			next.Reset(time.Until(due))
		}
	}
}

// due is when the server that is in use has to be looked at, if nothing is heard from it
// until then; nil if that does not have to be.
func (l *link) due() (*stay, time.Time) {
	s := &l.servers
	s.mu.Lock()
	at, doubted, choice := s.mu.now, s.mu.doubted, len(s.mu.list) > 1
	s.mu.doubted = nil
	var oldest time.Time // of the calls that wait
	follow := false
	for a := range at.attempts {
		if a.follow {
			follow = true
		} else if oldest.IsZero() || a.began.Before(oldest) {
			oldest = a.began
		}
	}
	s.mu.Unlock()
	heard := l.conns.heard(at.host)
	switch {
	case !choice:
		return nil, heard
	case doubted == at:
		return at, time.Time{}
	case !oldest.IsZero():
		if heard.After(oldest) {
			oldest = heard
		}
		return at, oldest.Add(silence)
	case follow:
		return at, heard.Add(idleSilence)
	}
	return nil, heard
}

// check asks the server in use whether it is ready, and if it is not, goes to one that is. A
// server is left for a better one only: when all are slow, it may be this machine that is.
func (t *Transport) check(ctx context.Context, at *stay) {
	why := t.ready(ctx, at.server)
	if why == nil {
		return
	}
	for _, to := range t.servers.others(at) {
		if t.ready(ctx, to) != nil || ctx.Err() != nil {
			continue
		}
		hangs := !errors.Is(why, errNotReady)
		if t.servers.leave(at, to, hangs) {
			t.o.Logger.Warn("the API server does not answer as it should, another one is used", "server", at.base, "next", to.base, "err", why)
			if hangs {
				closeAll(t.conns.takeTo(at.host))
			}
		}
		return
	}
}

// others are the servers that are not in use, those first that nothing is known against.
func (s *servers) others(at *stay) []*server {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := slices.DeleteFunc(slices.Clone(s.mu.list), func(o *server) bool { return o == at.server })
	slices.SortStableFunc(list, func(a, b *server) int { return a.until.Compare(b.until) })
	return list
}

// errNotReady says that a server is there, and says itself that it is not to be used.
var errNotReady = errors.New("it is not ready")

// ready asks a server whether it is ready. That it knows the caller is not asked.
func (t *Transport) ready(ctx context.Context, s *server) error {
	ctx, cancel := context.WithTimeoutCause(ctx, probeTimeout, errTime)
	defer cancel()
	req, err := t.request(ctx, s, &call{method: http.MethodGet, path: "/readyz", accept: "*/*", verb: "get"})
	if err != nil {
		return err
	}
	by, err := t.client(t.o.Plugin.last())
	if err != nil {
		return err
	}
	res, err := by.Do(req)
	if err != nil {
		return fmt.Errorf("ask whether it is ready: %w", causeOf(ctx, err))
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, maxRefusal)) // the connection is used further
	if res.StatusCode >= http.StatusInternalServerError {
		return fmt.Errorf("%w: %s", errNotReady, res.Status)
	}
	return nil
}

// goHome returns to the first server of the order if that is ready. Calls that run
// complete where they are.
func (t *Transport) goHome(ctx context.Context) {
	t.servers.mu.Lock()
	at, home := t.servers.mu.now, t.servers.mu.list[0]
	t.servers.mu.Unlock()
	if at.server != home && t.ready(ctx, home) == nil && t.servers.leave(at, home, false) {
		t.servers.worked(at) // nothing is wrong with it
	}
}
