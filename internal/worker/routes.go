package worker

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/announce/bgp"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/discovery"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/task"
)

// routes has routers told by BGP which addresses of balancers' pools lead to this machine. While no Service has
// one nothing runs for it. A machine decides for itself, by what it knows of nodes and endpoints: while the API is
// away, all stays as it is.
type routes struct {
	node   string
	peers  []bgp.Peer
	nodes  client.Reader[*corev1.Node]
	slices client.Reader[*discoveryv1.EndpointSlice]
	events client.EventSink
	log    *slog.Logger
	group  *task.Group

	served cache.Progress // up to which revision of Services the kernel's rules are true

	mu struct {
		sync.Mutex
		pooled map[string]pooled // by the keys of Services
		end    func(error)       // of what runs, and why; nil: nothing does
		over   chan struct{}     // closed when what ran last has ended
	}
	wake chan struct{} // holds one token
}

// pooled is a Service with addresses of a pool.
type pooled struct {
	addrs []netip.Addr
	local bool // only nodes with endpoints lead to it
	rev   int64
}

func newRoutes(g *task.Group, node string, t client.Transport, peers []bgp.Peer) *routes {
	r := &routes{
		node: node, peers: peers, group: g, wake: make(chan struct{}, 1),
		nodes: client.Cached(t, core.Nodes, ""), slices: client.Cached(t, discovery.EndpointSlices, ""),
	}
	r.mu.pooled, r.mu.over = map[string]pooled{}, make(chan struct{})
	close(r.mu.over)
	return r
}

// seen takes in changes of Services.
func (r *routes) seen(deltas []cache.Delta) {
	if len(r.peers) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range deltas {
		key, has := d.Last().Key, pooled{}
		if d.Now != nil {
			svc := d.Now.Object.(*corev1.Service)
			has.rev = d.Now.Rev
			for _, w := range wantsOf(svc) {
				has.addrs = append(has.addrs, w.Addr)
			}
			has.local = svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
		}
		if r.mu.pooled[key] = has; len(has.addrs) == 0 {
			delete(r.mu.pooled, key)
		}
	}
	switch {
	case len(r.mu.pooled) == 0 && r.mu.end != nil:
		r.mu.end(bgp.ErrNothing)
		r.mu.end = nil
	case len(r.mu.pooled) > 0 && r.mu.end == nil:
		before, over := r.mu.over, make(chan struct{})
		r.mu.over = over
		ctx, end := context.WithCancelCause(r.group.Context())
		r.mu.end = end
		r.group.Go("routes to balancers", func(context.Context) error {
			defer close(over)
			defer end(context.Canceled)
			<-before // two at once would be strangers to a router
			return r.run(ctx)
		})
	}
	r.look()
}

// look has it decided anew what is announced.
func (r *routes) look() {
	select {
	case r.wake <- struct{}{}:
	default: // there is a token already
	}
}

// run announces until ctx ends.
func (r *routes) run(ctx context.Context) error {
	s := bgp.NewSpeaker(bgp.Options{Node: r.node, Peers: r.peers, Report: r.report, Log: r.log})
	look := func([]cache.Delta) error {
		r.look()
		return nil
	}
	g := task.NewGroup(ctx)
	g.Go("nodes", func(ctx context.Context) error { return r.nodes.Each(ctx, cache.FollowOptions{}, look) })
	g.Go("endpoints", func(ctx context.Context) error { return r.slices.Each(ctx, cache.FollowOptions{}, look) })
	g.Go("what leads here", func(ctx context.Context) error {
		for _, synced := range []<-chan struct{}{r.nodes.Cache.Synced(), r.slices.Cache.Synced()} {
			select {
			case <-synced:
			case <-ctx.Done():
				return nil
			}
		}
		var now bgp.Routes
		for speaks, awaited := false, int64(0); ; {
			routes, late := r.decide(now.Addrs)
			if late > awaited {
				awaited = late
				r.served.Notify(late, r.look)
			}
			now = routes
			s.Set(now)
			if !speaks { // routers must not take it for all that there is before it is known what there is
				speaks = true
				g.Go("speaker", s.Run)
			}
			select {
			case <-r.wake:
			case <-ctx.Done():
				return nil
			}
		}
	})
	return g.Wait()
}

// decide is what is to be announced now, and up to which revision of Services more will be: what this machine has no
// rules for yet would be sent to it for nothing. before is what was announced.
func (r *routes) decide(before []netip.Addr) (all bgp.Routes, late int64) {
	r.mu.Lock()
	services := maps.Clone(r.mu.pooled)
	r.mu.Unlock()
	nodes := r.nodes.List("", nil)
	for key, svc := range services {
		var here map[string]bool // nil: endpoints do not matter
		if svc.local {
			here = discovery.ReadyNodes(r.slices.ByIndex(discovery.IndexService, key))
		}
		if !leads(r.node, nodes, here) {
			continue
		}
		waits := svc.rev > r.served.Rev()
		for _, addr := range svc.addrs {
			if !waits || slices.Contains(before, addr) {
				all.Addrs = append(all.Addrs, addr)
			} else {
				late = max(late, svc.rev)
			}
		}
	}
	all.More = late > 0
	slices.SortFunc(all.Addrs, netip.Addr.Compare)
	all.Addrs = slices.Compact(all.Addrs)
	if n, ok := r.nodes.Get("", r.node); ok {
		for _, a := range n.Status.Addresses {
			if addr, err := netip.ParseAddr(a.Address); err == nil && a.Type == corev1.NodeInternalIP {
				all.Own = append(all.Own, addr.Unmap())
			}
		}
	}
	return all, late
}

// leads says that a node is one of those that routers are to send to: it is ready and, unless all are, not
// cordoned, as who is about to be drained. here, if it is not nil, are the nodes with endpoints. While no node is
// ready, nobody knows better than that those which were there are.
func leads(name string, nodes []*corev1.Node, here map[string]bool) bool {
	var found *corev1.Node
	ready, free := false, false // some node is; some ready one is not cordoned
	for _, n := range nodes {
		if !core.BalancersServe(n) || here != nil && !here[n.Name] {
			continue
		}
		if n.Name == name {
			found = n
		}
		if core.NodeIsReady(n) {
			ready, free = true, free || !n.Spec.Unschedulable
		}
	}
	return found != nil && (!ready || core.NodeIsReady(found)) && !(free && found.Spec.Unschedulable)
}

// report tells people, by events of the Node, what becomes of the sessions.
func (r *routes) report(news bgp.Report) {
	node, ok := r.nodes.Get("", r.node)
	if !ok {
		node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: r.node}}
	}
	switch news.Kind {
	case bgp.Up:
		r.events.Event(node, corev1.EventTypeNormal, "BalancerPeerUp", "Routers are told by BGP of the addresses of balancers: "+news.Peer.String())
	case bgp.Down:
		r.events.Event(node, corev1.EventTypeWarning, "BalancerPeerDown", "A router is not told by BGP of the addresses of balancers, and it is tried again: "+news.Message)
	case bgp.Withheld:
		r.events.Event(node, corev1.EventTypeWarning, "BalancerRoutesWithheld", "A router is not told of all addresses of balancers: "+news.Message)
	}
}
