package kubelet

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/kubelet/admit"
	"github.com/kemudi/kemudi/internal/kubelet/contain"
	"github.com/kemudi/kemudi/internal/kubelet/container"
	"github.com/kemudi/kemudi/internal/kubelet/cri"
	"github.com/kemudi/kemudi/internal/kubelet/disk"
	"github.com/kemudi/kemudi/internal/kubelet/image"
	"github.com/kemudi/kemudi/internal/kubelet/machine"
	"github.com/kemudi/kemudi/internal/kubelet/manifest"
	"github.com/kemudi/kemudi/internal/kubelet/node"
	"github.com/kemudi/kemudi/internal/kubelet/objects"
	"github.com/kemudi/kemudi/internal/kubelet/pod"
	"github.com/kemudi/kemudi/internal/kubelet/runtime"
	"github.com/kemudi/kemudi/internal/task"
)

// Agent is one node's agent.
type Agent struct {
	o       Options
	pods    *pod.Set
	node    *node.Node
	ledger  *admit.Ledger
	objects *objects.Objects
	puller  *image.Puller
	// providers know credentials; collector removes images (not on a simulated node).
	providers *image.Providers
	collector *image.Collector
	runner    *container.Runner
	disk      *disk.Disk // nil on a simulated node
	facts     facts

	gauges gauges // nil on a simulated node, unless a test pretends some
	// pace is how often what the kernel does not tell of is looked at: how large
	// directories and logs are.
	pace time.Duration
	// manifests are of the static pods; nil: there are none. staticGone holds a
	// token when one of those has ended.
	manifests  *manifest.Dir
	staticGone chan struct{}

	running chan struct{} // closed when pods are being run
	group   *task.Group   // of all that Run starts
	watch   *runtime.Watch
	// podCache holds the pods of this node at least.
	podCache client.Reader[*v1.Pod]

	mu struct {
		sync.Mutex
		statics map[string]*pod.Actor // of the pods of manifests, the newest ones, by their keys
		read    map[string]int64      // how many bytes of a log clients have read from its beginning
	}
}

// facts is what the agent finds out about the node once.
type facts struct {
	runtime  runtime.Identity
	node     cri.Node
	capacity v1.ResourceList
	machine  machine.Info
	sysctls  *admit.Sysctls
}

const defaultPace = 10 * time.Second

// New returns an agent that does nothing yet.
func New(o Options) (*Agent, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	scope := "spec.nodeName=" + o.NodeName
	a := &Agent{
		o:        o,
		running:  make(chan struct{}),
		podCache: client.Cached(o.Transport, core.Pods, scope),
	}
	a.watch = &runtime.Watch{Client: o.Runtime, Log: o.Log, Event: func(e *runtimeapi.ContainerEventResponse) { a.pods.Deliver(e) },
		Again: func(found map[types.UID]*runtime.Inventory, began time.Time) { a.pods.Replace(found, began) }, Wanted: a.running}
	a.objects = objects.New(o.Transport, o.Log)
	if err := a.newImages(); err != nil {
		return nil, fmt.Errorf("kubelet: %w", err)
	}
	a.ledger = admit.NewLedger()
	a.mu.read = map[string]int64{}
	a.pace = defaultPace
	a.staticGone = make(chan struct{}, 1)
	a.mu.statics = map[string]*pod.Actor{}
	if dir := o.Settings.ManifestDir; dir != "" {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, fmt.Errorf("kubelet: make directory of manifests: %w", err)
		}
		a.manifests = &manifest.Dir{Path: dir, Node: o.NodeName}
	}
	if err := a.findFacts(); err != nil {
		return nil, fmt.Errorf("kubelet: %w", err)
	}
	if !o.Simulated {
		if a.disk, err = a.newDisk(); err != nil {
			return nil, fmt.Errorf("kubelet: %w", err)
		}
	}
	a.runner = container.New(container.Runner{
		Runtime: o.Runtime, Events: o.Events, Log: o.Log, Node: a.node, Facts: a.facts.node, Disk: a.disk, Objects: a.objects,
		Puller: a.puller, Ledger: a.ledger, Version: o.Version, ResolvConf: o.ResolvConf, Connected: o.Connected,
	})
	if a.gauges = o.gauges; a.gauges == nil && !o.Simulated {
		a.gauges = machineGauges{o.RootDir, o.Images, a.runner}
	}
	set := pod.Options{Runner: a.runner, Transport: o.Transport, Admit: a.admit, Every: a.pace, Forgotten: a.forgetRead}
	if a.gauges != nil {
		set.Usage = a.gauges.Pod
	}
	a.pods = pod.NewSet(set)
	return a, nil
}

// Running is closed when the agent has found what runs already and takes pods.
func (a *Agent) Running() <-chan struct{} { return a.running }

// Run keeps the node alive and runs its pods until ctx ends. Containers keep
// running (K1).
func (a *Agent) Run(ctx context.Context) error {
	var err error
	if a.facts.runtime, err = a.watch.Identify(ctx); err != nil {
		return err
	}
	g := task.NewGroup(ctx)
	a.group = g
	a.pods.Begin(g, a.facts.runtime.Name)
	goOn := func(part string, f func(context.Context) error) { g.Go(part, contain.Lasting(a.o.Log, part, f)) }
	goOn("heartbeat", func(ctx context.Context) error {
		return a.node.Run(ctx, node.Runtime{Version: a.facts.runtime.Name + "://" + a.facts.runtime.Version, StrictGroups: a.facts.runtime.StrictGroups})
	})
	goOn("runtime events", a.watch.Run)
	goOn("pods", a.followPods)
	if a.o.Settings.ManifestDir != "" {
		goOn("static pods", a.followManifests)
	}
	if a.gauges != nil {
		goOn("pressure", a.watchPressure)
	}
	if a.disk != nil {
		goOn("log rotation", a.disk.Logs.Run)
		goOn("image garbage collection", a.collector.Run)
	}
	return g.Wait()
}

// followPods starts an actor for each pod of the node, and tells the actors of
// changes.
func (a *Agent) followPods(ctx context.Context) error {
	if a.Ready() == nil { // it begins anew
		a.pods.Compare(a.podCache.Get)
	}
	return a.podCache.Each(ctx, cache.FollowOptions{Index: "spec.nodeName", Value: a.o.NodeName},
		func(deltas []cache.Delta) error { return a.take(ctx, deltas) })
}

// take hands a batch of changes to the actors. The first batch is all there is:
// only then is it known what on the node belongs to nobody (K2).
func (a *Agent) take(ctx context.Context, deltas []cache.Delta) error {
	select {
	case <-a.running:
	default:
		return a.adopt(ctx, deltas)
	}
	for _, d := range deltas {
		contain.Run(a.o.Log, "update", d.Last().Key, func() { a.takeOne(d, nil) })
	}
	return nil
}

func (a *Agent) takeOne(d cache.Delta, found *runtime.Inventory) {
	p := d.Last().Object.(*v1.Pod)
	switch {
	case pod.MirrorOf(p) != "":
		a.takeMirror(p, d.Now == nil)
	case d.Now == nil:
		a.pods.Gone(p)
	default:
		a.pods.Take(p, d.Now.Rev, found)
	}
}
