package drain

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/task"
)

// fleet is nodes that a server asks, each over a pipe.
type fleet struct {
	*Nodes
	c     caches
	g     *task.Group
	nodes map[string]*machine
}

// machine is one node.
type machine struct {
	own     cache.Progress
	asked   atomic.Int32 // how often
	at      atomic.Int32 // how many questions it has now
	cut     atomic.Bool  // nobody reaches it
	deaf    atomic.Bool  // the way to it hangs
	foreign atomic.Bool  // its agent knows nothing of this
}

// ServeHTTP answers as a node's agent.
func (m *machine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.asked.Add(1)
	m.at.Add(1)
	defer m.at.Add(-1)
	if m.foreign.Load() {
		http.NotFound(w, r)
		return
	}
	mux := http.NewServeMux()
	mux.HandleFunc(Pattern, Handler(&m.own))
	mux.ServeHTTP(w, r)
}

// pipes is a listener whose connections are pipes.
type pipes struct {
	conns chan net.Conn
	ended <-chan struct{}
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.ended:
		return nil, net.ErrClosed
	}
}
func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{} }

// newFleet returns nodes that are ready, of which a server asks; it ends with the test.
func newFleet(t *testing.T, names ...string) *fleet {
	f := &fleet{c: newCaches(nil), g: task.NewGroup(t.Context()), nodes: map[string]*machine{}}
	dialed := map[string]pipes{}
	for _, name := range names {
		f.setReady(name, corev1.ConditionTrue)
		m, l := &machine{}, pipes{make(chan net.Conn), f.g.Context().Done()}
		f.nodes[name], dialed[name] = m, l
		srv := &http.Server{Handler: m}
		f.g.Go("node", func(context.Context) error { return ignoreClosed(srv.Serve(l)) })
		f.g.Go("end node", func(ctx context.Context) error {
			<-ctx.Done()
			return srv.Close()
		})
	}
	f.Nodes = NewNodes(NodesOptions{Group: f.g, Transport: f.c, Logger: slog.New(slog.DiscardHandler), Dial: func(ctx context.Context, node string) (net.Conn, error) {
		if f.nodes[node].cut.Load() {
			return nil, errors.New("no route to host")
		}
		if f.nodes[node].deaf.Load() {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}
		here, there := net.Pipe()
		select {
		case dialed[node].conns <- there:
			return here, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}})
	t.Cleanup(func() {
		f.g.Cancel(context.Canceled)
		if err := f.g.Wait(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func ignoreClosed(err error) error {
	if errors.Is(err, http.ErrServerClosed) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (f *fleet) setReady(name string, is corev1.ConditionStatus) {
	f.c.set(core.Nodes.Def, 1, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: is}}},
	})
}

// wait asks for a node n1 and reports who was silent, and how long that took.
func (f *fleet) wait(t *testing.T, rev int64) ([]string, time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), longestAsk)
	defer cancel()
	began := time.Now()
	silent := f.Await(ctx, "n1", rev)
	slices.Sort(silent)
	return silent, time.Since(began)
}

const longestAsk = 5 * time.Second

func TestOnlyOtherNodesThatAreReadyAreAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, "n1", "n2", "n3")
		f.setReady("n3", corev1.ConditionUnknown)
		f.nodes["n2"].own.Advance(7)
		if silent, took := f.wait(t, 7); silent != nil || took != 0 {
			t.Errorf("got %v after %s, want nobody silent, at once", silent, took)
		}
		for name, want := range map[string]int32{"n1": 0, "n2": 1, "n3": 0} {
			if got := f.nodes[name].asked.Load(); got != want {
				t.Errorf("%s was asked %d times, want %d", name, got, want)
			}
		}
		if silent, _ := f.wait(t, 5); silent != nil || f.nodes["n2"].asked.Load() != 1 {
			t.Errorf("an earlier revision: got %v, want that n2 is not asked again", silent)
		}
	})
}

func TestNodeAloneAsksNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, "n1")
		if silent, took := f.wait(t, 7); silent != nil || took != 0 || f.nodes["n1"].asked.Load() > 0 {
			t.Errorf("got %v after %s, asked %d times", silent, took, f.nodes["n1"].asked.Load())
		}
	})
}

// TestNodeIsAskedOneThingAtATime for all who wait (D2), the first of them first; each is told
// when his revision is applied.
func TestNodeIsAskedOneThingAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, "n1", "n2")
		n2 := f.nodes["n2"]
		var told [3]atomic.Bool
		var wg sync.WaitGroup
		for i := range told {
			wg.Go(func() {
				if silent, _ := f.wait(t, int64(10+i)); silent == nil {
					told[i].Store(true)
				}
			})
			synctest.Wait()
		}
		if n := n2.at.Load(); n != 1 {
			t.Errorf("n2 has %d questions, want 1", n)
		}
		for i := range told {
			n2.own.Advance(int64(10 + i))
			synctest.Wait()
			for j := range told {
				if got := told[j].Load(); got != (j <= i) {
					t.Errorf("n2 has applied %d: who waits for %d was told: %v", 10+i, 10+j, got)
				}
			}
		}
		wg.Wait()
		if n := n2.at.Load(); n != 0 {
			t.Errorf("n2 has %d questions still, want none: nobody waits", n)
		}
	})
}

// TestSilentNodeIsWaitedForOnce and named all the while (D3).
func TestSilentNodeIsWaitedForOnce(t *testing.T) {
	for name, silence := range map[string]func(*machine){
		"its proxy hangs":     func(*machine) {},
		"nobody reaches it":   func(m *machine) { m.cut.Store(true) },
		"the way to it hangs": func(m *machine) { m.deaf.Store(true) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, "n1", "n2", "n3")
				f.nodes["n3"].own.Advance(99)
				silence(f.nodes["n2"])
				for i, want := range []time.Duration{longestAsk, 0, 0} {
					if silent, took := f.wait(t, 10); !slices.Equal(silent, []string{"n2"}) || took != want {
						t.Errorf("wait %d: got %v after %s, want n2 after %s", i+1, silent, took, want)
					}
				}
				time.Sleep(passedOver)
				if _, took := f.wait(t, 10); took != longestAsk {
					t.Errorf("half a minute later: waited for %s, want %s", took, longestAsk)
				}
				time.Sleep(passedOver)
				f.nodes["n2"].cut.Store(false)
				f.nodes["n2"].deaf.Store(false)
				f.nodes["n2"].own.Advance(10)
				if silent, took := f.wait(t, 10); silent != nil || took > time.Second {
					t.Errorf("it is heard of again: got %v after %s", silent, took)
				}
			})
		})
	}
}

func TestWhoWaitsForAMomentBlamesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, "n1", "n2")
		ctx, cancel := context.WithTimeout(t.Context(), patience/2)
		defer cancel()
		if silent := f.Await(ctx, "n1", 10); !slices.Equal(silent, []string{"n2"}) {
			t.Errorf("got %v, want n2", silent)
		}
		if _, took := f.wait(t, 10); took != longestAsk {
			t.Errorf("the next one waited for %s, want %s", took, longestAsk)
		}
	})
}

// TestNodeWithoutOurProxyIsBelieved (D4): nobody waits for it, nor asks again and again.
func TestNodeWithoutOurProxyIsBelieved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, "n1", "n2")
		n2 := f.nodes["n2"]
		n2.foreign.Store(true)
		for rev := range int64(3) {
			if silent, took := f.wait(t, 10+rev); silent != nil || took != 0 {
				t.Errorf("got %v after %s, want nobody, at once", silent, took)
			}
		}
		if n := n2.asked.Load(); n != 1 {
			t.Errorf("it was asked %d times, want once", n)
		}
		time.Sleep(believed)
		n2.foreign.Store(false)
		if silent, took := f.wait(t, 20); !slices.Equal(silent, []string{"n2"}) || took != longestAsk {
			t.Errorf("it has our proxy now: got %v after %s, want n2 after %s", silent, took, longestAsk)
		}
	})
}

func TestServerAnswersWithinTheTimeOfTheQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, "n1", "n2")
		began := time.Now()
		a, err := f.Serve(t.Context(), "n1", "10", url.Values{"timeout": {"2s"}})
		if err != nil || !slices.Equal(a.Silent, []string{"n2"}) || time.Since(began) != 2*time.Second {
			t.Errorf("got %+v, %v after %s, want n2 after 2s", a, err, time.Since(began))
		}
		for _, bad := range []struct{ name, timeout string }{{"x", "1s"}, {"-1", "1s"}, {"10", ""}, {"10", "-1s"}} {
			if _, err := f.Serve(t.Context(), "n1", bad.name, url.Values{"timeout": {bad.timeout}}); err == nil {
				t.Errorf("%+v: no error", bad)
			}
		}
	})
}

func TestWhatHasGoneIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, "n1", "n2", "n3")
		for _, m := range f.nodes {
			m.own.Advance(10)
		}
		f.wait(t, 10)
		for _, name := range []string{"n2", "n3"} {
			f.c.of[core.Nodes.Def].Apply([]cache.Change{cache.Gone(f.c.of[core.Nodes.Def].Get(name), 20)})
		}
		f.wait(t, 10)
		if n := len(f.mu.of); n != 0 {
			t.Errorf("%d nodes are still known", n)
		}
	})
}
