package drain

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/task"
)

// NodesOptions say which nodes a server asks. All fields are required.
type NodesOptions struct {
	// Group runs what asks nodes, while somebody waits for them. It has not ended as long as
	// somebody does.
	Group *task.Group
	// Transport reads which nodes there are.
	Transport client.Transport
	// Dial opens a connection to the agent of a node on which it speaks HTTP.
	Dial   func(ctx context.Context, node string) (net.Conn, error)
	Logger *slog.Logger
}

// Nodes asks nodes, on a server, up to which revision their rules are true. Its methods may be
// called concurrently.
type Nodes struct {
	o    NodesOptions
	http *http.Transport

	mu struct {
		sync.Mutex
		of map[string]*node
	}
}

// node is what is known of one. The lock of Nodes guards it.
type node struct {
	name    string
	applied int64 // the revision that it has said last
	asked   bool  // a task asks it
	waits   []pending
	none    time.Time // until when it counts as one without such rules (D4)
	silent  time.Time // until when nobody waits for it (D3)
}

// pending is one who waits for a node.
type pending struct {
	rev int64
	by  *waiter
}

// waiter waits for several nodes.
type waiter struct {
	left int           // so many
	done chan struct{} // closed when there are none left
}

const (
	keptOpen   = 2 * time.Minute  // a connection that nothing goes through
	passedOver = 30 * time.Second // a node that was silent
	believed   = time.Minute      // a node that said that it has no such rules
	asksFor    = 5 * time.Second  // how long a node may take for its answer
	patience   = time.Second      // who has waited shorter blames nobody
	maxAnswer  = 1 << 10
)

// NewNodes returns what asks nodes. It connects when it is used.
func NewNodes(o NodesOptions) *Nodes {
	n := &Nodes{o: o, http: &http.Transport{
		IdleConnTimeout: keptOpen, MaxIdleConnsPerHost: 1,
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			name, _, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			// The transport goes on dialing when the question has ended, for the next one: not when there is none any more.
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			defer context.AfterFunc(o.Group.Context(), cancel)()
			return o.Dial(ctx, name)
		},
	}}
	n.mu.of = map[string]*node{}
	context.AfterFunc(o.Group.Context(), n.http.CloseIdleConnections)
	return n
}

// Others are all nodes but one, as [Pods] asks for them.
func (n *Nodes) Others(but string) Others {
	return func(ctx context.Context, rev int64) ([]string, error) { return n.Await(ctx, but, rev), nil }
}

// Serve answers a node by HTTP: the revision is the name that the path has.
func (n *Nodes) Serve(ctx context.Context, asker, name string, query url.Values) (*Answer, error) {
	rev, timeout, ok := parse(name, query)
	if !ok {
		return nil, apierrors.NewBadRequest("a revision and a timeout are asked for")
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return &Answer{Silent: n.Await(ctx, asker, rev)}, nil
}

// Await waits until the rules of all nodes that are ready are true up to a revision, except those
// of the node that asks, or until ctx ends. It returns the nodes of which that is not known.
func (n *Nodes) Await(ctx context.Context, asker string, rev int64) (silent []string) {
	w := &waiter{done: make(chan struct{})}
	began := time.Now()
	waiting, silent := n.join(w, asker, rev)
	if len(waiting) == 0 {
		return silent
	}
	select {
	case <-w.done:
	case <-ctx.Done():
		silent = append(silent, n.leave(w, waiting, time.Since(began) >= patience)...)
	}
	return silent
}

// join has the waiter wait for all nodes that have not said yet what is wanted. Those that are
// passed over are returned as silent.
func (n *Nodes) join(w *waiter, asker string, rev int64) (waiting []*node, silent []string) {
	all := client.Cached(n.o.Transport, core.Nodes, "").List("", nil)
	now := time.Now()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.forgetLocked(all)
	for _, obj := range all {
		if obj.Name == asker || !core.NodeIsReady(obj) { // who is lost is not waited for
			continue
		}
		of := n.mu.of[obj.Name]
		if of == nil {
			of = &node{name: obj.Name}
			n.mu.of[obj.Name] = of
		}
		switch {
		case of.applied >= rev || now.Before(of.none):
		case now.Before(of.silent):
			silent = append(silent, of.name)
		default:
			of.waits, waiting = append(of.waits, pending{rev, w}), append(waiting, of)
			w.left++
			if !of.asked {
				of.asked = true
				n.o.Group.Go("ask node what it has applied", func(ctx context.Context) error {
					n.ask(ctx, of)
					return nil
				})
			}
		}
	}
	return waiting, silent
}

// forgetLocked drops what is known of nodes that have gone.
func (n *Nodes) forgetLocked(all []*corev1.Node) {
	if len(n.mu.of) <= len(all) {
		return
	}
	there := make(map[string]bool, len(all))
	for _, obj := range all {
		there[obj.Name] = true
	}
	for name, of := range n.mu.of {
		if !there[name] && !of.asked {
			delete(n.mu.of, name)
		}
	}
}

// leave has the waiter wait no more, and returns the nodes that have not answered. Blame has
// them passed over for a while (D3).
func (n *Nodes) leave(w *waiter, waiting []*node, blame bool) (silent []string) {
	until := time.Now().Add(passedOver)
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, of := range waiting {
		before := len(of.waits)
		of.waits = slices.DeleteFunc(of.waits, func(p pending) bool { return p.by == w })
		if len(of.waits) == before {
			continue // it has answered
		}
		silent = append(silent, of.name)
		if blame {
			of.silent = until
		}
	}
	return silent
}

// ask asks a node as long as somebody waits for it (D2).
func (n *Nodes) ask(ctx context.Context, of *node) {
	back := task.Backoff{Initial: 50 * time.Millisecond, Max: time.Second, Jitter: 0.2}
	for {
		rev, wanted := n.wanted(of)
		if !wanted {
			return
		}
		applied, err := n.once(ctx, of.name, rev)
		n.heard(of, applied, err)
		if err == nil || errors.Is(err, errNone) {
			back.Reset()
			continue
		}
		n.o.Logger.DebugContext(ctx, "node does not say what it has applied", "node", of.name, "err", err)
		if task.Sleep(ctx, back.Next()) != nil {
			n.mu.Lock()
			of.asked = false
			n.mu.Unlock()
			return
		}
	}
}

// wanted is the first revision that somebody waits for. If nobody does, the node is not asked
// any more.
func (n *Nodes) wanted(of *node) (rev int64, wanted bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(of.waits) == 0 {
		of.asked = false
		return 0, false
	}
	first := slices.MinFunc(of.waits, func(a, b pending) int { return cmp.Compare(a.rev, b.rev) })
	return first.rev, true
}

// heard takes in what a node has said, and tells those who have waited for it.
func (n *Nodes) heard(of *node, applied int64, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	none := errors.Is(err, errNone)
	switch {
	case none:
		of.none, of.silent = time.Now().Add(believed), time.Time{}
	case err == nil:
		of.applied, of.silent = max(of.applied, applied), time.Time{}
	default:
		return
	}
	of.waits = slices.DeleteFunc(of.waits, func(p pending) bool {
		if !none && p.rev > of.applied {
			return false
		}
		if p.by.left--; p.by.left == 0 {
			close(p.by.done)
		}
		return true
	})
}

// errNone says that a node has no rules of ours, or does not tell of them.
var errNone = errors.New("the node does not tell what its rules are")

// once asks a node once.
func (n *Nodes) once(ctx context.Context, name string, rev int64) (applied int64, _ error) {
	ctx, cancel := context.WithTimeout(ctx, asksFor)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+name+path(rev, asksFor*4/5), nil)
	if err != nil {
		return 0, fmt.Errorf("ask node %s: %w", name, err)
	}
	resp, err := n.http.RoundTrip(req)
	if err != nil {
		return 0, fmt.Errorf("ask node %s: %w", name, err)
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	switch {
	case resp.StatusCode >= 400 && resp.StatusCode < 500:
		return 0, fmt.Errorf("ask node %s: %s: %w", name, resp.Status, errNone)
	case resp.StatusCode != http.StatusOK:
		return 0, fmt.Errorf("ask node %s: %s", name, resp.Status)
	case err != nil:
		return 0, fmt.Errorf("ask node %s: %w", name, err)
	}
	var a Answer
	if err := json.Unmarshal(said, &a); err != nil {
		return 0, fmt.Errorf("ask node %s: %w", name, err)
	}
	return a.Applied, nil
}
