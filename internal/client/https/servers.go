package https

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kemudi/kemudi/internal/task"
)

// server is one of those that a link may ask. What changes is guarded by the list's lock.
type server struct {
	base string // its URL, without a last slash
	host string // what is dialed

	backoff task.Backoff
	until   time.Time // others are preferred until then, and after; zero: nothing is wrong with it
}

// parseServers reads the URLs of servers, each once.
func parseServers(urls []string) ([]*server, error) {
	var list []*server
	for _, text := range urls {
		u, err := url.Parse(text)
		if err != nil {
			return nil, fmt.Errorf("server: %w", err)
		}
		if u.Scheme != "https" || u.Hostname() == "" {
			return nil, fmt.Errorf("server %q is not the URL of a server with TLS, such as https://10.0.0.1:6443", text)
		}
		port := u.Port()
		if port == "" {
			port = "443"
		}
		s := &server{base: strings.TrimSuffix(u.String(), "/"), host: net.JoinHostPort(u.Hostname(), port)}
		if !slices.ContainsFunc(list, s.same) {
			list = append(list, s)
		}
	}
	if len(list) == 0 {
		return nil, errors.New("there is no server")
	}
	return list, nil
}

func (s *server) same(other *server) bool { return s.base == other.base }

// stay is the time for which a link keeps to one server.
type stay struct {
	*server
	attempts map[*attempt]struct{} // that have not ended; guarded by the list's lock
}

// attempt is a call at one server, from when it is sent until all of the answer is here.
type attempt struct {
	of     *servers
	at     *stay
	ctx    context.Context // of this one call
	cancel context.CancelCauseFunc
	began  time.Time
	follow bool // it is a watch that has begun, and may rest
}

// errLeft is why a call ended whose server the link has left.
var errLeft = errors.New("another API server is used from now on")

// servers are those that a link may ask, in an order of its own: so the clients of a
// cluster are spread over its servers, and those of a server that fails over the others.
type servers struct {
	wake chan struct{} // holds a token while there may be something to look at

	mu struct {
		sync.Mutex
		list    []*server
		now     *stay
		doubted *stay // its server has complained of something that others may not suffer from
		initial time.Duration
	}
}

func (s *servers) init(list []*server, backoff time.Duration) {
	s.wake = make(chan struct{}, 1)
	s.mu.initial = backoff
	s.set(list)
}

// set changes the list. Those that were known keep their place in the order, new ones get
// any.
func (s *servers) set(list []*server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.list = slices.DeleteFunc(s.mu.list, func(old *server) bool { return !slices.ContainsFunc(list, old.same) })
	for _, next := range list {
		if slices.ContainsFunc(s.mu.list, next.same) {
			continue
		}
		next.backoff = task.Backoff{Initial: s.mu.initial, Max: most * s.mu.initial, Jitter: 1}
		s.mu.list = slices.Insert(s.mu.list, rand.IntN(len(s.mu.list)+1), next)
	}
	if s.mu.now == nil || !slices.Contains(s.mu.list, s.mu.now.server) {
		s.goLocked(s.bestLocked(), false)
	}
}

func (s *servers) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.mu.list)
}

// bestLocked is the first in the order that nothing is wrong with, or else the one whose
// back-off ends first.
func (s *servers) bestLocked() *server {
	return slices.MinFunc(s.mu.list, func(a, b *server) int { return a.until.Compare(b.until) })
}

// goLocked goes to another server. Watches at the old one end, as they can go on, and with
// all other calls end too.
func (s *servers) goLocked(to *server, all bool) {
	old := s.mu.now
	s.mu.now = &stay{server: to, attempts: map[*attempt]struct{}{}}
	if old == nil {
		return
	}
	for a := range old.attempts {
		if all || a.follow {
			a.cancel(errLeft)
		}
	}
}

// begin begins a call at the server that is in use. It must be ended.
func (s *servers) begin(ctx context.Context) *attempt {
	a := &attempt{of: s, began: time.Now()}
	a.ctx, a.cancel = context.WithCancelCause(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	a.at = s.mu.now
	a.at.attempts[a] = struct{}{}
	if len(a.at.attempts) == 1 {
		s.wakeLocked()
	}
	return a
}

// wakeLocked has the link look at what it uses, where it has a choice.
func (s *servers) wakeLocked() {
	if len(s.mu.list) < 2 {
		return
	}
	select {
	case s.wake <- struct{}{}:
	default: // there is one already
	}
}

// lasts says that the answer comes bit by bit, for as long as the link stays.
func (a *attempt) lasts() {
	a.of.mu.Lock()
	defer a.of.mu.Unlock()
	a.follow = true
	if a.at != a.of.mu.now {
		a.cancel(errLeft)
	}
}

// end ends an attempt; it may be called more than once.
func (a *attempt) end(why error) {
	a.of.mu.Lock()
	delete(a.at.attempts, a)
	a.of.mu.Unlock()
	a.cancel(why)
}

// worked notes that a server has answered as it should.
func (s *servers) worked(at *stay) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at.until = time.Time{}
	at.backoff.Reset()
}

// failed notes that a server cannot be used, for so long at least, and goes to the best of
// the others. Calls that have failed together count once.
func (s *servers) failed(at *stay, least time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at == s.mu.now {
		s.leaveLocked(nil, least, false)
	}
}

// leave goes from a server to another one that is known to work.
func (s *servers) leave(at *stay, to *server, all bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at != s.mu.now || !slices.Contains(s.mu.list, to) {
		return false
	}
	to.until = time.Time{}
	s.leaveLocked(to, 0, all)
	return true
}

func (s *servers) leaveLocked(to *server, least time.Duration, all bool) {
	from := s.mu.now.server
	from.until = time.Now().Add(max(from.backoff.Next(), least))
	if to == nil {
		to = s.bestLocked()
	}
	if to != from {
		s.goLocked(to, all)
	}
}

// doubt has a server looked at that has complained.
func (s *servers) doubt(at *stay) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.doubted = at
	s.wakeLocked()
}
