package reach

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// land has ways that the test describes, in virtual time.
type land struct {
	*testing.T
	ways map[string]way
	list []string // those that there are, in their order
	*Ways

	mu struct {
		sync.Mutex
		began []string // tries, as "way@milliseconds"
		open  int      // connections that nobody has closed
	}
	since time.Time
}

// way is how one way behaves: it connects, or fails with why, after a while; never: it hangs.
type way struct {
	takes time.Duration
	why   string
	hangs bool
	liar  bool // another machine is at its end
}

func newLand(t *testing.T, list ...string) *land {
	l := &land{T: t, ways: map[string]way{}, list: list}
	l.Ways = New(func(Target) (ways []Way) {
		for _, name := range l.list {
			ways = append(ways, Way{Name: name, Dial: func(ctx context.Context, to Target) (net.Conn, error) { return l.dial(ctx, name, to) }})
		}
		return ways
	})
	return l
}

// counted is a connection that is counted while it is open.
type counted struct {
	net.Conn
	l    *land
	once sync.Once
	by   string
}

func (c *counted) Close() error {
	c.once.Do(func() {
		c.l.mu.Lock()
		defer c.l.mu.Unlock()
		c.l.mu.open--
	})
	return c.Conn.Close()
}

func (l *land) dial(ctx context.Context, name string, to Target) (net.Conn, error) {
	w := l.ways[name]
	l.mu.Lock()
	l.mu.began = append(l.mu.began, fmt.Sprintf("%s@%d", name, time.Since(l.since).Milliseconds()))
	l.mu.Unlock()
	done := time.NewTimer(w.takes)
	defer done.Stop()
	ready := done.C
	if w.hangs {
		ready = nil
	}
	select {
	case <-ready:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if w.why != "" {
		return nil, errors.New(w.why)
	}
	near, far := net.Pipe()
	_ = far.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.open++
	return &counted{Conn: near, l: l, by: name}, nil
}

// reach connects to the pods of n1 and says by which way, which were tried, when, and after how long.
func (l *land) reach(to Target) string {
	l.Helper()
	l.since, l.mu.began = time.Now(), nil
	conn, err := l.Dial(l.Context(), to)
	text := fmt.Sprint(err)
	if err == nil {
		text = conn.(*counted).by
		if l.mu.open != 1 {
			l.Errorf("%d connections are open, want one", l.mu.open)
		}
		_ = conn.Close()
	}
	if l.mu.open != 0 {
		l.Errorf("%d connections are open in the end", l.mu.open)
	}
	return fmt.Sprintf("%s %dms (%s)", text, time.Since(l.since).Milliseconds(), strings.Join(l.mu.began, " "))
}

var pods = Target{Node: "n1", Kind: Pod, Address: "10.0.0.1:80"}

func (l *land) want(to Target, want string) {
	l.Helper()
	if got := l.reach(to); got != want {
		l.Errorf("got %s, want %s", got, want)
	}
}

func TestFirstWayThatWorksIsTaken(t *testing.T) {
	const ms = time.Millisecond
	for _, tc := range []struct {
		name                   string
		direct, tunnel, others way
		want                   string
	}{
		{"the first works", way{takes: ms}, way{takes: ms}, way{takes: ms}, "direct 1ms (direct@0)"},
		{"it is slow, but not as slow as the next", way{takes: 160 * ms}, way{takes: 20 * ms}, way{}, "direct 160ms (direct@0 tunnel@150)"},
		{"it hangs", way{hangs: true}, way{takes: 2 * ms}, way{}, "tunnel 152ms (direct@0 tunnel@150)"},
		{"it fails at once", way{why: "no route to host"}, way{takes: 2 * ms}, way{}, "tunnel 2ms (direct@0 tunnel@0)"},
		{"two hang", way{hangs: true}, way{hangs: true}, way{takes: ms}, "others 301ms (direct@0 tunnel@150 others@300)"},
		{"one hangs, one fails", way{hangs: true}, way{why: "no tunnel"}, way{takes: ms}, "others 151ms (direct@0 tunnel@150 others@150)"},
		{"two are as fast", way{takes: 151 * ms}, way{takes: ms}, way{}, "151ms (direct@0 tunnel@150)"},
		{"none works", way{why: "refused"}, way{why: "no tunnel"}, way{takes: ms, why: "not here"}, "direct: refused; tunnel: no tunnel; others: not here 1ms (direct@0 tunnel@0 others@0)"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLand(t, "direct", "tunnel", "others")
				l.ways = map[string]way{"direct": tc.direct, "tunnel": tc.tunnel, "others": tc.others}
				if got := l.reach(pods); !strings.HasSuffix(got, tc.want) {
					t.Errorf("got %s, want %s", got, tc.want)
				}
			})
		})
	}
}

func TestWayThatWasFoundGoesFirstForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLand(t, "direct", "tunnel")
		l.ways = map[string]way{"direct": {hangs: true}, "tunnel": {takes: time.Millisecond}}
		l.want(pods, "tunnel 151ms (direct@0 tunnel@150)")
		for range 4 {
			time.Sleep(time.Minute)
			l.want(pods, "tunnel 1ms (tunnel@0)")
		}
		agent := Target{Node: "n1", Kind: Agent}
		l.want(agent, "tunnel 151ms (direct@0 tunnel@150)")
		l.want(Target{Node: "n2", Kind: Pod}, "tunnel 151ms (direct@0 tunnel@150)")
		time.Sleep(time.Minute)
		l.want(pods, "tunnel 151ms (direct@0 tunnel@150)") // not for longer because it was used
		l.ways["tunnel"] = way{why: "ended"}
		l.ways["direct"] = way{takes: time.Millisecond}
		l.want(pods, "direct 1ms (tunnel@0 direct@0)")
		l.want(pods, "direct 1ms (direct@0)")
		l.list = l.list[:1] // the tunnel that was found for the agent is gone
		l.want(agent, "direct 1ms (direct@0)")
	})
}

func TestFindsOfNodesThatAreGoneAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLand(t, "direct", "tunnel")
		l.ways = map[string]way{"direct": {why: "no route"}, "tunnel": {}}
		for round := range 20 {
			for n := range leastSweep {
				l.reach(Target{Node: fmt.Sprintf("n%d-%d", round, n)})
			}
			time.Sleep(remembered)
		}
		if got := len(l.Ways.mu.found); got > 2*leastSweep {
			t.Errorf("%d finds are remembered, want those of the last %d nodes and no more than twice as many", got, leastSweep)
		}
	})
}

func TestWhoCannotProveItselfIsNotReached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLand(t, "direct", "tunnel")
		l.ways = map[string]way{"direct": {liar: true}, "tunnel": {takes: time.Millisecond}}
		to := pods
		to.Prove = func(_ context.Context, conn net.Conn) (net.Conn, error) {
			if l.ways[conn.(*counted).by].liar {
				return nil, errors.New("certificate of another machine")
			}
			return conn, nil
		}
		l.want(to, "tunnel 1ms (direct@0 tunnel@0)")
		l.ways["tunnel"] = way{liar: true}
		l.want(to, "tunnel: certificate of another machine; direct: certificate of another machine 0ms (tunnel@0 direct@0)")
		l.list = l.list[:1]
		l.want(to, "certificate of another machine 0ms (direct@0)")
	})
}

func TestReachEndsWithItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLand(t, "direct", "tunnel")
		l.ways = map[string]way{"direct": {hangs: true}, "tunnel": {hangs: true}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		conn, err := l.Dial(ctx, pods)
		if !errors.Is(err, context.DeadlineExceeded) || conn != nil {
			t.Errorf("got %v, %v, want that the time is over", conn, err)
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		l.mu.began = nil
		if _, err := l.Dial(ctx, pods); err == nil || len(l.mu.began) != 1 {
			t.Errorf("got %v after tries of %v, want one try", err, l.mu.began)
		}
	})
}
