package kubelet

import (
	"context"
	"errors"
	"net/http"
	"os"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/kubelet/contain"
	"github.com/kemudi/kemudi/internal/kubelet/cri"
	"github.com/kemudi/kemudi/internal/kubelet/csi"
	"github.com/kemudi/kemudi/internal/kubelet/node"
	"github.com/kemudi/kemudi/internal/kubelet/pod"
	"github.com/kemudi/kemudi/internal/kubelet/runtime"
	"github.com/kemudi/kemudi/internal/kubelet/server"
	"github.com/kemudi/kemudi/internal/kubelet/static"
	"github.com/kemudi/kemudi/internal/kubelet/volume"
	"github.com/kemudi/kemudi/internal/task"
)

// Agent is one node's agent.
type Agent struct {
	o       Options
	node    *node.Node
	watch   *runtime.Watch
	pods    *pod.Set
	static  *static.Pods
	drivers *csi.Drivers // nil on a simulated node
	server  *server.Server
	parts   []part                 // that Run runs
	cache   client.Reader[*v1.Pod] // of the pods of this node at least
	running chan struct{}          // closed when pods are being run
	unheard unheard
	swap    int64 // that the machine has, in bytes

	registry *prometheus.Registry
}

// part is a part of the agent, which runs until its context ends.
type part struct {
	name string
	run  func(context.Context) error
}

// Running is closed when the agent has found what runs already and takes pods.
func (a *Agent) Running() <-chan struct{} { return a.running }

// Ready reports why the agent does not run pods yet; nil: it does.
func (a *Agent) Ready() error {
	select {
	case <-a.running:
		return nil
	default:
		return errors.New("the node agent has not taken up its pods yet")
	}
}

// Handler serves the agent's API: what the API server asks nodes for. Whoever
// serves it must have made sure that the caller may ask.
func (a *Agent) Handler() http.Handler { return a.server.Handler() }

// Registry has the metrics that the agent's API serves: its own, and what else is added.
func (a *Agent) Registry() *prometheus.Registry { return a.registry }

// Run keeps the node alive and runs its pods until ctx ends. Containers keep
// running (K1).
func (a *Agent) Run(ctx context.Context) error {
	if err := a.watch.Identify(ctx); err != nil {
		return err
	}
	g := task.NewGroup(ctx)
	a.pods.Begin(g, a.watch.Identity.Name)
	for _, p := range a.parts {
		g.Go(p.name, contain.Lasting(a.o.Log, p.name, p.run))
	}
	return errors.Join(g.Wait(), a.pods.Runner.Disk.Close())
}

// swapped says what is wrong with a machine that has so many bytes of swap, for volumes in memory which stay there or may not.
func swapped(swap int64, stay bool) string {
	if swap == 0 || stay {
		return ""
	}
	return "The tmpfs noswap option is not supported. Memory-backed volumes (e.g. secrets, emptyDirs, etc.) might be swapped to disk and should no longer be considered secure."
}

// heartbeat keeps the node in the API.
func (a *Agent) heartbeat(ctx context.Context) error {
	if a.pods.Runner.Disk != nil {
		if wrong := cri.ResolvUnfit(a.o.ResolvConf, a.o.ClusterDomain, os.ReadFile); wrong != "" {
			a.o.Events.Event(a.node.Self(), v1.EventTypeWarning, "CheckLimitsForResolvConf", wrong)
		}
		if wrong := swapped(a.swap, volume.StaysInMemory()); wrong != "" {
			a.o.Events.Event(a.node.Self(), v1.EventTypeWarning, "PossibleMemoryBackedVolumesOnDisk", wrong)
		}
	}
	r := a.watch.Identity
	return a.node.Run(ctx, node.Runtime{Version: r.Name + "://" + r.Version, StrictGroups: r.StrictGroups})
}

// followPods starts an actor for each pod of the node, and tells the actors of
// changes.
func (a *Agent) followPods(ctx context.Context) error {
	if a.Ready() == nil { // it begins anew
		a.pods.Compare(a.cache.Get)
	}
	return a.cache.Each(ctx, cache.FollowOptions{Index: "spec.nodeName", Value: a.o.NodeName},
		func(deltas []cache.Delta) error { return a.take(ctx, deltas) })
}

// take hands a batch of changes to the actors. The first batch is all there is:
// only then is it known what on the node belongs to nobody (K2).
func (a *Agent) take(ctx context.Context, deltas []cache.Delta) error {
	if a.Ready() != nil {
		return a.adopt(ctx, deltas)
	}
	found, err := a.heardOf(ctx, deltas)
	if err != nil {
		return err
	}
	for _, d := range deltas {
		contain.Run(a.o.Log, "update", d.Last().Key, func() { a.takeOne(d, found[d.Last().Object.GetUID()]) })
	}
	if found != nil {
		a.pods.Replay()
	}
	return nil
}

func (a *Agent) takeOne(d cache.Delta, found *runtime.Inventory) {
	p := d.Last().Object.(*v1.Pod)
	switch {
	case pod.MirrorOf(p) != "":
		a.static.TakeMirror(p, d.Now == nil)
	case d.Now == nil:
		a.pods.Gone(p)
	default:
		a.pods.Take(p, d.Now.Rev, found)
	}
}

// adopt starts the actors of the pods there are. What the runtime still has of pods that
// are not is left to the part that removes it.
func (a *Agent) adopt(ctx context.Context, pods []cache.Delta) error {
	a.pods.Keep()
	found, err := a.watch.All(ctx)
	if err != nil {
		return err
	}
	slices.SortStableFunc(pods, func(x, y cache.Delta) int { // oldest first: it was here first
		return x.Now.Object.GetCreationTimestamp().Compare(y.Now.Object.GetCreationTimestamp().Time)
	})
	mirrors := map[string]*v1.Pod{}
	for _, d := range pods {
		if p := d.Now.Object.(*v1.Pod); pod.MirrorOf(p) != "" {
			mirrors[d.Now.Key] = p
		}
	}
	a.static.Apply(found, mirrors)
	for _, d := range pods {
		uid := d.Now.Object.GetUID()
		contain.Run(a.o.Log, "update", d.Now.Key, func() { a.takeOne(d, found[uid]) })
		delete(found, uid)
	}
	a.unheard.leave(found)
	a.pods.Replay()
	close(a.running)
	return nil
}

// SetNodeIPs tells the agent that the node has other addresses now, the primary
// one first. The Node and the pods say so soon; a pod that runs keeps what it has
// been told in variables and files.
func (a *Agent) SetNodeIPs(ips []string) {
	ips = slices.Clone(ips)
	a.node.SetAddresses(ips)
	a.pods.SetHostIPs(ips)
}

// ImagesChanged tells the agent that others have added or removed images, for the
// node's status to say so. It does not wait.
func (a *Agent) ImagesChanged() {
	a.pods.Runner.Puller.Changed()
	a.node.Look()
}
