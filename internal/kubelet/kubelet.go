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
	"github.com/kemudi/kemudi/internal/kubelet/evict"
	"github.com/kemudi/kemudi/internal/kubelet/image"
	"github.com/kemudi/kemudi/internal/kubelet/machine"
	"github.com/kemudi/kemudi/internal/kubelet/manifest"
	"github.com/kemudi/kemudi/internal/kubelet/node"
	"github.com/kemudi/kemudi/internal/kubelet/objects"
	"github.com/kemudi/kemudi/internal/kubelet/runtime"
	"github.com/kemudi/kemudi/internal/task"
)

// Agent is one node's agent.
type Agent struct {
	o       Options
	pods    client.Client[*v1.Pod]
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

	// podUsage measures what a pod holds on disk, gauge what the node has left. Nil on
	// a simulated node, which has no disk.
	podUsage func(context.Context, *v1.Pod) (evict.Storage, error)
	gauge    func(context.Context) (evict.Readings, error)
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
		actors  map[types.UID]*actor
		statics map[string]*actor           // of the pods of manifests, the newest ones, by their keys
		leaving map[types.UID]chan struct{} // closed when the pod that is evicted has ended
		read    map[string]int64            // how many bytes of a log clients have read from its beginning
		// early holds events that came between the first look at the runtime and
		// the start of the actors; nil when they are not kept.
		early []*runtimeapi.ContainerEventResponse
		keep  bool
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
		pods:     client.For(o.Transport, core.Pods),
		running:  make(chan struct{}),
		podCache: client.Cached(o.Transport, core.Pods, scope),
	}
	a.watch = &runtime.Watch{Client: o.Runtime, Log: o.Log, Event: a.deliver, Again: a.lookedAgain, Wanted: a.running}
	a.objects = objects.New(o.Transport, o.Log)
	if err := a.newImages(); err != nil {
		return nil, fmt.Errorf("kubelet: %w", err)
	}
	a.mu.actors, a.ledger = map[types.UID]*actor{}, admit.NewLedger()
	a.mu.read = map[string]int64{}
	a.pace = defaultPace
	a.staticGone = make(chan struct{}, 1)
	a.mu.statics = map[string]*actor{}
	if dir := o.Settings.ManifestDir; dir != "" {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, fmt.Errorf("kubelet: make directory of manifests: %w", err)
		}
		a.manifests = &manifest.Dir{Path: dir, Node: o.NodeName}
	}
	a.mu.leaving = map[types.UID]chan struct{}{}
	if err := a.findFacts(); err != nil {
		return nil, fmt.Errorf("kubelet: %w", err)
	}
	if !o.Simulated {
		if a.disk, err = a.newDisk(); err != nil {
			return nil, fmt.Errorf("kubelet: %w", err)
		}
		a.podUsage, a.gauge = a.storageOf, a.readGauges
	}
	a.runner = container.New(container.Runner{
		Runtime: o.Runtime, Events: o.Events, Log: o.Log, Node: a.node, Facts: a.facts.node, Disk: a.disk, Objects: a.objects,
		Puller: a.puller, Ledger: a.ledger, Version: o.Version, ResolvConf: o.ResolvConf, Connected: o.Connected,
	})
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
	goOn := func(part string, f func(context.Context) error) { g.Go(part, contain.Lasting(a.o.Log, part, f)) }
	goOn("heartbeat", func(ctx context.Context) error {
		return a.node.Run(ctx, node.Runtime{Version: a.facts.runtime.Name + "://" + a.facts.runtime.Version, StrictGroups: a.facts.runtime.StrictGroups})
	})
	goOn("runtime events", a.watch.Run)
	goOn("pods", a.followPods)
	if a.o.Settings.ManifestDir != "" {
		goOn("static pods", a.followManifests)
	}
	if a.gauge != nil {
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
		a.forgetDeleted()
	}
	return a.podCache.Each(ctx, cache.FollowOptions{Index: "spec.nodeName", Value: a.o.NodeName},
		func(deltas []cache.Delta) error { return a.take(ctx, deltas) })
}

// take hands a batch of changes to the actors. The first batch is all there is:
// only then is it known what on the node belongs to nobody (K4).
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
	pod := d.Last().Object.(*v1.Pod)
	if mirrorOf(pod) != "" {
		a.takeMirror(pod, d.Now == nil)
		return
	}
	a.mu.Lock()
	act := a.mu.actors[pod.UID]
	a.mu.Unlock()
	if d.Now == nil {
		if act != nil {
			act.post(func(x *actor) { x.gone(pod) })
		}
		return
	}
	if act != nil {
		act.post(func(x *actor) { x.update(pod, d.Now.Rev) })
		return
	}
	a.start(newActor(a, pod, d.Now.Rev), found)
}

// start runs an actor; found is what the runtime has of its pod already.
func (a *Agent) start(act *actor, found *runtime.Inventory) {
	if found != nil {
		act.adopt(found)
	}
	if !act.d.Gone {
		act.d.Fail = a.admit(act.d.Pod, len(act.o.Sandboxes) > 0)
		if core.PodConditionTrue(act.d.Pod, v1.PodResizePending) {
			act.resize()
		}
	}
	a.mu.Lock()
	a.mu.actors[act.uid] = act
	a.mu.Unlock()
	a.group.Go("pod", func(context.Context) error {
		defer a.drop(act)
		return act.run()
	})
}

func (a *Agent) drop(act *actor) {
	a.puller.Forget(act.uid)
	a.objects.Unfollow(act.uid)
	a.ledger.Forget(act.uid)
	close(act.done)
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.mu.actors, act.uid)
	if key := cache.Key(act.d.Pod.Namespace, act.d.Pod.Name); a.mu.statics[key] == act {
		delete(a.mu.statics, key)
		select {
		case a.staticGone <- struct{}{}: // its file may be back
		default: // it has been told
		}
	}
	a.leftLocked(act.uid)
}

// forgetDeleted tells the actors whose pods have left the API unnoticed.
func (a *Agent) forgetDeleted() {
	for _, act := range a.allActors() {
		act.post(func(x *actor) {
			pod, ok := a.podCache.Get(x.d.Pod.Namespace, x.d.Pod.Name)
			if x.o.Mirror != nil {
				if !ok || mirrorOf(pod) == "" {
					pod = nil
				}
				x.sawMirror(pod)
				return
			}
			if !ok || pod.UID != x.uid {
				x.gone(x.d.Pod)
			}
		})
	}
}

func (a *Agent) allActors() []*actor {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := make([]*actor, 0, len(a.mu.actors))
	for _, act := range a.mu.actors {
		list = append(list, act)
	}
	return list
}
