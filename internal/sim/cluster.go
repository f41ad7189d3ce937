package sim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/apiserver"
	"github.com/kemudi/kemudi/internal/auth/authn"
	"github.com/kemudi/kemudi/internal/auth/pki"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/cloud/loopback"
	"github.com/kemudi/kemudi/internal/controllers"
	"github.com/kemudi/kemudi/internal/controllers/acme"
	"github.com/kemudi/kemudi/internal/controllers/gateway"
	"github.com/kemudi/kemudi/internal/controllers/loadbalancer"
	"github.com/kemudi/kemudi/internal/plane"
	"github.com/kemudi/kemudi/internal/simnode"
	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/store/mem"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/watchcache"
)

// NodeOptions describe a simulated node.
type NodeOptions = simnode.Options

// node is a simulated node, which may run.
type node struct {
	*simnode.Node
	cancel context.CancelCauseFunc // nil: it does not run
	done   chan struct{}
}

// Options say what to simulate.
type Options struct {
	Nodes  []NodeOptions
	Logger *slog.Logger // nil: nothing is logged
	Store  store.Store  // nil: an empty one in memory
	// DualStack gives services and pods addresses of both families.
	DualStack bool
	// Tokens makes the tokens of service accounts; nil: an issuer of the simulation's own.
	Tokens *authn.Issuer
	// Cloud is the file of a loopback cloud; empty: the cluster has none.
	Cloud string
	// LoadBalancer is what Services are balanced by; the zero value: nothing.
	LoadBalancer loadbalancer.Options
	// ACME says who signs certificates of Ingresses; the zero value: nobody.
	ACME acme.Options
	// Gateways has the kinds of the Gateway API defined.
	Gateways bool
	// Plugins are the admission plugins that are on or off other than by default.
	Plugins plane.Plugins
	// Serving configures the API server beyond a simulation's needs, for tests
	// that reach it over a network; nil: as it is.
	Serving func(o *apiserver.Options, caches *watchcache.Set) error
}

// Cluster is a simulated cluster.
type Cluster struct {
	options plane.Options
	plane   *plane.Plane
	stop    context.CancelCauseFunc // ends the control plane
	stopped chan struct{}           // closed when it has ended

	group   *task.Group
	nodes   map[string]*node
	planes  map[string]*contender // that stand for election; nil: the one control plane leads
	usage   *usage
	adapter *adapter
	log     *slog.Logger
	dual    bool
	ca      *pki.Authority
	token   *authn.ServiceAccountTokens
}

var (
	errStopped = errors.New("the simulation is over")
	errCrashed = errors.New("the control plane is started again")
)

// Start runs a cluster and returns when its API can be used. Stop it, or its
// goroutines stay.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Store == nil {
		o.Store = mem.New(mem.Options{})
	}
	ca, err := pki.NewAuthority("simulated")
	if err != nil {
		return nil, err
	}
	issuer := o.Tokens
	if issuer == nil {
		if issuer, err = authn.NewIssuer(authn.IssuerOptions{Key: ca.Key}); err != nil {
			return nil, err
		}
	}
	network := plane.Network{}
	if o.DualStack {
		network.ServiceCIDRs = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:96::/112")}
		network.ClusterCIDRs = []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:244::/56")}
	}
	c := &Cluster{group: task.NewGroup(ctx), nodes: map[string]*node{}, log: o.Logger, dual: o.DualStack, ca: ca}
	c.options = plane.Options{
		Store: o.Store, CABundle: string(ca.CertPEM()), Logger: o.Logger, Host: "sim", Network: network,
		Controllers: controllers.Options{Authority: ca, Tokens: issuer, LoadBalancer: o.LoadBalancer, Edges: controllers.Edges{ACME: o.ACME, Gateway: gateway.Options{Define: o.Gateways}}},
		Plugins:     o.Plugins,
	}
	if o.Cloud != "" {
		provider, err := loopback.Open(o.Cloud)
		if err != nil {
			return nil, err
		}
		c.options.Controllers.Cloud.Provider = provider
	}
	pods := func() *cache.Cache { return c.API().Cache(core.Pods.Def, "") }
	c.usage, c.adapter = newUsage(c.group, pods), newAdapter(pods)
	c.options.Serving = func(s *apiserver.Options, caches *watchcache.Set) error {
		s.Nodes, s.Aggregated = c.usage, c.adapter
		if o.Serving == nil {
			return nil
		}
		return o.Serving(s, caches)
	}
	if err := c.startPlane(); err != nil {
		return nil, err
	}
	c.token = authn.NewServiceAccountTokens(issuer, c.tokenObjects())
	for _, n := range o.Nodes {
		if err := c.AddNode(n); err != nil {
			return nil, errors.Join(err, c.Stop())
		}
	}
	return c, nil
}

// startPlane starts a control plane on the store, and returns when its API can
// be used.
func (c *Cluster) startPlane() error {
	c.options.Registry = prometheus.NewRegistry() // each counts from the start
	plane, err := plane.New(c.options)
	if err != nil {
		return err
	}
	var ctx context.Context
	ctx, c.stop = context.WithCancelCause(c.group.Context())
	stopped := make(chan struct{})
	c.plane, c.stopped = plane, stopped
	c.group.Go("control plane", func(context.Context) error {
		defer close(stopped)
		err := plane.Run(ctx)
		if errors.Is(context.Cause(ctx), errCrashed) {
			return nil
		}
		return err
	})
	select {
	case <-plane.Ready():
		return nil
	case <-c.group.Context().Done():
		return c.group.Wait()
	}
}

// Restart ends the control plane in the middle of whatever it does, and starts
// one that knows only what is stored. The nodes' pods run on.
func (c *Cluster) Restart() error {
	c.stop(errCrashed)
	<-c.stopped
	var running []string
	for name, n := range c.nodes {
		if n.cancel == nil {
			continue
		}
		running = append(running, name)
		if err := c.StopNode(name); err != nil {
			return err
		}
	}
	if err := c.startPlane(); err != nil {
		return err
	}
	for _, n := range c.nodes {
		n.Node = n.Again(c.API(), c.log)
	}
	for _, name := range running {
		if err := c.StartNode(name); err != nil {
			return err
		}
	}
	return nil
}

// Stop ends the cluster and waits for all of it.
func (c *Cluster) Stop() error {
	for _, p := range c.planes {
		p.line.thaw(true)
	}
	c.group.Cancel(errStopped)
	return c.group.Wait()
}

// API is the cluster's API with every right.
func (c *Cluster) API() client.Transport { return c.plane.Admin() }

// SetLoad says what pods use from now on.
func (c *Cluster) SetLoad(l Load) { c.usage.SetLoad(l) }

// Server is the cluster's API server.
func (c *Cluster) Server() *apiserver.Server { return c.plane.Server() }

// AddNode adds a simulated node and starts it.
func (c *Cluster) AddNode(o NodeOptions) error {
	if c.nodes[o.Name] != nil {
		return fmt.Errorf("there is a node %s already", o.Name)
	}
	if len(c.nodes) == simnode.MaxNodes {
		return fmt.Errorf("a simulated cluster has at most %d nodes", simnode.MaxNodes)
	}
	c.nodes[o.Name] = &node{Node: simnode.New(o, &simnode.Addresses{Node: len(c.nodes), Dual: c.dual}, c.API(), c.log)}
	return c.StartNode(o.Name)
}

// StartNode starts a node that was stopped.
func (c *Cluster) StartNode(name string) error {
	n := c.nodes[name]
	if n == nil {
		return fmt.Errorf("there is no node %s", name)
	}
	if n.cancel != nil {
		return fmt.Errorf("node %s runs already", name)
	}
	c.usage.answers(name, true)
	ctx, cancel := context.WithCancelCause(c.group.Context())
	n.cancel, n.done = cancel, make(chan struct{})
	c.group.Go("node "+name, func(context.Context) error {
		defer close(n.done)
		if err := n.Run(ctx); err != nil && ctx.Err() == nil {
			return err
		}
		return nil
	})
	return nil
}

// StepClock sets the clock of a node ahead by d, or back if d is negative.
func (c *Cluster) StepClock(name string, d time.Duration) error {
	n := c.nodes[name]
	if n == nil {
		return fmt.Errorf("there is no node %s", name)
	}
	n.StepClock(d)
	return nil
}

// StopNode makes a node fall silent, as if its machine lost power.
func (c *Cluster) StopNode(name string) error {
	n := c.nodes[name]
	if n == nil || n.cancel == nil {
		return fmt.Errorf("no node %s runs", name)
	}
	c.usage.answers(name, false)
	n.cancel(errStopped)
	<-n.done
	n.cancel = nil
	return nil
}
