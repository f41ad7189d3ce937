package simulate

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/cloud/scale"
	"github.com/kemudi/kemudi/internal/nodepool"
	"github.com/kemudi/kemudi/internal/obs"
	"github.com/kemudi/kemudi/internal/simnode"
	"github.com/kemudi/kemudi/internal/task"
)

// Options say what to simulate. All are required.
type Options struct {
	Pools     []Pool
	Transport client.Transport // may do everything
	Logger    *slog.Logger
}

// Simulation runs the nodes of pools, which grow and shrink: it is the cloud that they are
// machines of.
type Simulation struct {
	o    Options
	log  *slog.Logger
	seen client.Reader[*corev1.Node]
	g    *task.Group // of Run

	mu struct {
		sync.Mutex
		last    map[string]int // number of the newest node of each pool
		numbers int            // of all nodes that there were: their addresses follow from it
		nodes   map[string]*simulated
	}
}

var _ scale.Cloud = (*Simulation)(nil)

// simulated is a node that runs, or is on its way.
type simulated struct {
	pool *Pool // nil: of none
	end  context.CancelFunc
}

// New returns a simulation that does not run yet.
func New(o Options) *Simulation {
	s := &Simulation{o: o, log: o.Logger.With("part", "simulation"), seen: client.Cached(o.Transport, core.Nodes, "")}
	s.mu.last, s.mu.nodes = map[string]int{}, map[string]*simulated{}
	return s
}

// Take has the nodes among objects of another cluster be simulated as soon as they are in the cluster
// of a simulation.
func Take(objects []Object) {
	for _, o := range objects {
		if n, ok := o.Object.(*corev1.Node); ok {
			n.Status.NodeInfo.KubeletVersion = simnode.Version
		}
	}
}

// isSimulated says that a node of the cluster is one that is simulated. Others may have brought nodes of their own.
func isSimulated(n *corev1.Node) bool {
	_, pooled := n.Labels[PoolLabel]
	return pooled || n.Status.NodeInfo.KubeletVersion == simnode.Version
}

// Run runs the simulated nodes that the cluster has and those that the pools are to begin with, until
// ctx ends.
func (s *Simulation) Run(ctx context.Context) error {
	select {
	case <-s.seen.Synced():
	case <-ctx.Done():
		return nil
	}
	s.g = task.NewGroup(ctx)
	sizes := map[string]int{}
	for _, n := range s.seen.List("", nil) {
		if isSimulated(n) {
			sizes[s.resume(n)]++
		}
	}
	for i := range s.o.Pools {
		pool := &s.o.Pools[i]
		for range pool.Count - sizes[pool.Name] {
			s.begin(pool, 0)
		}
	}
	s.g.Go("pools", nodepool.New(nodepool.Options{
		Cloud: s, Transport: s.o.Transport, Metrics: nodepool.NewMetrics(obs.NewRegistry()), Logger: s.log,
	}).Run)
	return s.g.Wait()
}

// resume runs a node that the cluster has already: of a pool, whose name it returns, or as it says
// of itself.
func (s *Simulation) resume(n *corev1.Node) (pool string) {
	for i := range s.o.Pools {
		p := &s.o.Pools[i]
		if p.Name != n.Labels[PoolLabel] {
			continue
		}
		if number, err := strconv.Atoi(strings.TrimPrefix(n.Name, p.Name+"-")); err == nil {
			s.mu.last[p.Name] = max(s.mu.last[p.Name], number)
		}
		s.run(p.node(n.Name), p, 0)
		return p.Name
	}
	s.run(simnode.Options{Name: n.Name, Labels: n.Labels, Resources: n.Status.Allocatable}, nil, 0)
	return ""
}

// begin runs a new node of a pool, after a while, and returns its name.
func (s *Simulation) begin(pool *Pool, after time.Duration) string {
	s.mu.Lock()
	s.mu.last[pool.Name]++
	name := fmt.Sprintf("%s-%d", pool.Name, s.mu.last[pool.Name])
	s.mu.Unlock()
	s.run(pool.node(name), pool, after)
	return name
}

func (s *Simulation) run(o simnode.Options, pool *Pool, after time.Duration) {
	ctx, cancel := context.WithCancel(s.g.Context())
	s.mu.Lock()
	s.mu.nodes[o.Name] = &simulated{pool: pool, end: cancel}
	n := simnode.New(o, &simnode.Addresses{Node: s.mu.numbers, Small: true}, s.o.Transport, s.log)
	s.mu.numbers = (s.mu.numbers + 1) % simnode.MaxSmallNodes
	s.mu.Unlock()
	s.g.Go("node "+o.Name, func(context.Context) error {
		defer cancel()
		if task.Sleep(ctx, after) != nil {
			return nil
		}
		again := task.Backoff{Initial: time.Second, Max: time.Minute, Jitter: 0.5}
		for ctx.Err() == nil {
			if err := n.Run(ctx); err != nil && ctx.Err() == nil {
				s.log.Warn("run a simulated node", "node", o.Name, "err", err)
				if task.Sleep(ctx, again.Next()) != nil {
					return nil
				}
			}
		}
		return nil
	})
}

// Pools are those of the profile.
func (s *Simulation) Pools(context.Context) (out []scale.Pool, _ error) {
	for i := range s.o.Pools {
		out = append(out, s.o.Pools[i].scale())
	}
	return out, nil
}

// Machines are the nodes of pools.
func (s *Simulation) Machines(context.Context) (out []scale.Machine, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, n := range s.mu.nodes {
		if n.pool != nil {
			out = append(out, scale.Machine{Node: name, Pool: n.pool.Name, State: scale.On})
		}
	}
	return out, nil
}

// Start has a node come, which takes as long as the pool says.
func (s *Simulation) Start(_ context.Context, name string) (scale.Machine, error) {
	for i := range s.o.Pools {
		if pool := &s.o.Pools[i]; pool.Name == name {
			return scale.Machine{Node: s.begin(pool, pool.ProvisionAfter.Duration), Pool: name, State: scale.On}, nil
		}
	}
	return scale.Machine{}, fmt.Errorf("there is no pool %q", name)
}

// Stop ends a node.
func (s *Simulation) Stop(_ context.Context, m scale.Machine) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.mu.nodes[m.Node]; n != nil {
		n.end()
		delete(s.mu.nodes, m.Node)
	}
	return nil
}
