package metricsserver

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/task"
)

const (
	// fresh is how long what a node said is good for all who ask. An autoscaler that
	// asks every 15 s has a new look each time.
	fresh = 10 * time.Second
	// recent is how old the look before may be for a rate between the two to say what is
	// used now.
	recent = 90 * time.Second
	// apart is how far two looks are apart where there was none before.
	apart = time.Second
	// patience bounds one look at a node.
	patience = 10 * time.Second
	// together is how many nodes are asked at one time.
	together = 32
)

// Options of a Server. All are required.
type Options struct {
	// Ask looks at a node.
	Ask func(ctx context.Context, node string) (*Sample, error)
	// Nodes and Pods are the caches of the cluster's.
	Nodes, Pods *cache.Cache
	Logger      *slog.Logger
}

// Server knows what nodes and pods use, once it is asked.
type Server struct {
	o  Options
	mu struct {
		sync.Mutex
		nodes map[string]*node
	}
}

// New returns a server that has looked at nothing yet.
func New(o Options) *Server {
	s := &Server{o: o}
	s.mu.nodes = map[string]*node{}
	return s
}

// looks are two looks at a node. Without both nothing is known of it.
type looks struct{ before, last *Sample }

// node is what is known of a node. Its newest look is taken by one of those who want it.
type node struct {
	mu struct {
		sync.Mutex
		busy  chan struct{} // closed when the look is done that is being taken; nil: none is
		asked time.Time     // when the last was
		looks
	}
}

// node returns the state of a node. With a new one, those that are no more are forgotten.
func (s *Server) node(name string) *node {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.mu.nodes[name]
	if n == nil {
		for known := range s.mu.nodes {
			if s.o.Nodes.Get(known) == nil {
				delete(s.mu.nodes, known)
			}
		}
		n = &node{}
		s.mu.nodes[name] = n
	}
	return n
}

// lookAt looks at nodes, several at a time. Nothing is returned of those that cannot be
// looked at.
func (s *Server) lookAt(ctx context.Context, names []string) map[string]looks {
	out, left := map[string]looks{}, make(chan string, len(names))
	for _, name := range names {
		if l, ok := s.node(name).known(); ok {
			out[name] = l
		} else {
			left <- name
		}
	}
	close(left)
	var (
		mu sync.Mutex
		wg sync.WaitGroup
	)
	for range min(len(left), together) {
		wg.Go(func() {
			for name := range left {
				l, err := s.look(ctx, name)
				if err != nil && ctx.Err() == nil {
					s.o.Logger.Debug("look at what a node uses", "node", name, "err", err)
				}
				mu.Lock()
				out[name] = l
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return out
}

// known is what is known without a new look.
func (n *node) known() (l looks, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.looks, n.mu.busy == nil && !n.mu.asked.IsZero() && time.Since(n.mu.asked) < fresh
}

// look takes a new look at a node, or waits for the one that another is taking.
func (s *Server) look(ctx context.Context, name string) (looks, error) {
	n := s.node(name)
	for {
		if l, ok := n.known(); ok {
			return l, nil
		}
		n.mu.Lock()
		busy := n.mu.busy
		if busy == nil {
			n.mu.busy = make(chan struct{})
			n.mu.Unlock()
			return s.take(ctx, name, n)
		}
		n.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return looks{}, context.Cause(ctx)
		}
	}
}

// take takes the look. One that fails is not tried again for a while, unless who wanted
// it gave up.
func (s *Server) take(ctx context.Context, name string, n *node) (l looks, err error) {
	defer func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if ctx.Err() == nil {
			n.mu.looks, n.mu.asked = l, time.Now()
		}
		close(n.mu.busy)
		n.mu.busy = nil
	}()
	n.mu.Lock()
	l.before = n.mu.last
	old := time.Since(n.mu.asked) > recent
	n.mu.Unlock()
	if l.before == nil || old {
		if l.before, err = s.ask(ctx, name); err != nil {
			return looks{}, err
		}
		if err := task.Sleep(ctx, apart); err != nil {
			return looks{}, err
		}
	}
	if l.last, err = s.ask(ctx, name); err != nil {
		return looks{}, err
	}
	return l, nil
}

func (s *Server) ask(ctx context.Context, name string) (*Sample, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return s.o.Ask(ctx, name)
}
