package pod

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/kubelet/contain"
	"github.com/kemudi/kemudi/internal/kubelet/container"
	"github.com/kemudi/kemudi/internal/kubelet/cri"
	"github.com/kemudi/kemudi/internal/kubelet/evict"
	"github.com/kemudi/kemudi/internal/kubelet/podstep"
	"github.com/kemudi/kemudi/internal/kubelet/runtime"
	"github.com/kemudi/kemudi/internal/obs/tracing"
	"github.com/kemudi/kemudi/internal/task"
)

// Options of a Set. Runner, Transport and Admit are required.
type Options struct {
	Runner    *container.Runner
	Transport client.Transport
	// Admit takes a pod on, or says why the node rejects it. Ours says that something
	// of the pod is on the node already.
	Admit func(pod *v1.Pod, ours bool) *podstep.Failure
	// Usage measures what a pod holds on disk. Nil: there is no disk.
	Usage func(context.Context, *v1.Pod) (evict.Storage, error)
	// Every is how often what the kernel does not tell of is looked at: how large
	// directories are. Required with Usage.
	Every time.Duration
	// RestartWait is how long containers that exit again and again wait at the most; 0: as on other nodes.
	RestartWait time.Duration
	// Drained returns when nothing new is sent to a pod that is being deleted. If ctx ends
	// before, the error says what is not known. Nil: nobody can tell.
	Drained func(ctx context.Context, pod *v1.Pod) error
	// Metrics is where the metrics of pods are registered. Nil: nowhere.
	Metrics prometheus.Registerer
	// Tracing makes spans of what is done for pods; nil: there are none.
	Tracing *tracing.Provider
	// Forgotten is told of each container that has been removed. It must not block. Optional.
	Forgotten func(id string)
}

// Set holds the actors of the pods of a node. Its methods may be called concurrently.
type Set struct {
	Options
	api     client.Client[*v1.Pod]
	group   *task.Group // that actors run in
	runtime string      // the name of the container runtime
	began   time.Time   // when actors could run
	metrics *metrics

	followed atomic.Int32 // how many followers there are
	starting sync.Mutex   // held while an actor is started: there is one of a pod
	mu       struct {
		sync.Mutex
		followers []*follower // a new slice with each change
		actors    map[types.UID]*Actor
		// early holds events that came between the first look at the runtime and
		// the start of the actors; nil when they are not kept.
		early []*runtimeapi.ContainerEventResponse
		keep  bool
	}
}

// NewSet returns a Set without pods.
func NewSet(o Options) *Set {
	s := &Set{Options: o, api: client.For(o.Transport, core.Pods)}
	s.mu.actors, s.metrics = map[types.UID]*Actor{}, newMetrics(o.Metrics, s)
	return s
}

// Begin has the actors run in g; runtime is the name of the container runtime. It is
// called once, before anything else.
func (s *Set) Begin(g *task.Group, runtime string) {
	s.group, s.runtime, s.began = g, runtime, time.Now()
}

// Go starts f beside the actors.
func (s *Set) Go(name string, f func(context.Context) error) { s.group.Go(name, f) }

// RuntimeName is the name of the container runtime.
func (s *Set) RuntimeName() string { return s.runtime }

// Take takes in a pod as the API has it at revision rev. Found is what the runtime has
// of it already, if it is a new one.
func (s *Set) Take(pod *v1.Pod, rev int64, found *runtime.Inventory) {
	if x := s.actor(pod.UID); x != nil {
		x.post(func(x *Actor) { x.update(pod, rev) })
		return
	}
	s.Start(newActor(s, pod, rev), found)
}

// Gone takes in that a pod has left the API. What it took is free at once, though it may
// take its time to end: whoever is sent here next is sent because it is gone.
func (s *Set) Gone(pod *v1.Pod) {
	if x := s.actor(pod.UID); x != nil {
		s.Runner.Ledger.Release(x.uid)
		x.post(func(x *Actor) { x.gone(pod) })
	}
}

// Start runs an actor; found is what the runtime has of its pod already. If another actor still ends
// what there was of the same pod, as after its manifest came back, that comes first.
func (s *Set) Start(x *Actor, found *runtime.Inventory) {
	s.starting.Lock()
	defer s.starting.Unlock()
	if before := s.actor(x.uid); before != nil {
		s.After(before, "pod that came back", func() { s.Start(x, nil) })
		return
	}
	if found != nil {
		x.adopt(found)
	}
	if !x.d.Gone {
		s.metrics.containers.Observe(float64(len(x.d.Pod.Spec.Containers)))
		ours := len(x.o.Sandboxes) > 0
		x.d.Fail = s.Admit(x.d.Pod, ours)
		s.metrics.rejected(x.d.Fail)
		x.findDevices(ours)
		x.findPlaces()
		if core.PodConditionTrue(x.d.Pod, v1.PodResizePending) {
			x.resize(triggerUpdated, nil)
		}
	}
	s.mu.Lock()
	s.mu.actors[x.uid] = x
	s.mu.Unlock()
	s.group.Go("pod", func(context.Context) error {
		defer s.drop(x)
		s.metrics.seen.Observe(time.Since(x.now).Seconds())
		return x.run()
	})
}

// After calls f when nothing is left of an actor's pod, unless the agent ends before.
func (s *Set) After(x *Actor, name string, f func()) {
	s.group.Go(name, func(ctx context.Context) error {
		select {
		case <-x.done:
			contain.Run(s.Runner.Log, name, string(x.uid), f)
		case <-ctx.Done():
		}
		return nil
	})
}

// StartOrphan runs the actor of a pod that the API does not have any more: all that
// is known is what the runtime remembers. A pod that has come back meanwhile takes that over.
func (s *Set) StartOrphan(uid types.UID, inv *runtime.Inventory) {
	if x := s.actor(uid); x != nil {
		x.post(func(x *Actor) { x.replace(inv) })
		return
	}
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}}
	setName := func(labels map[string]string) {
		pod.Name, pod.Namespace = labels[cri.LabelPodName], labels[cri.LabelPodNamespace]
	}
	for _, s := range inv.Sandboxes {
		setName(s.Labels)
	}
	for _, c := range inv.Containers {
		setName(c.Status.Labels)
		if cri.FindContainer(pod, c.Status.Metadata.Name) == nil {
			pod.Spec.Containers = append(pod.Spec.Containers, cri.OrphanContainer(c.Status))
		}
	}
	x := newActor(s, pod, 0)
	x.d.Gone, x.starting = true, nil
	s.metrics.orphans.Inc()
	s.Start(x, inv)
}

func (s *Set) drop(x *Actor) {
	s.Runner.Puller.Forget(x.uid)
	s.Runner.Objects.Unfollow(x.uid)
	s.Runner.Ledger.Release(x.uid)
	s.mu.Lock()
	delete(s.mu.actors, x.uid)
	s.mu.Unlock()
	x.leave()
	if s.followed.Load() > 0 && s.group.Context().Err() == nil { // else the agent ends, not the pod
		s.tell(Told{Pod: x.d.Pod, Gone: true})
	}
	close(x.done)
	if x.onEnd != nil {
		x.onEnd(x)
	}
}

// actor is that of the pod, or nil.
func (s *Set) actor(uid types.UID) *Actor {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.actors[uid]
}

// Has reports whether there is an actor of the pod.
func (s *Set) Has(uid types.UID) bool { return s.actor(uid) != nil }

func (s *Set) all() []*Actor {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.mu.actors))
}

// Compare tells the actors of pods that the API does not have any more, by get, that
// they have left it unnoticed.
func (s *Set) Compare(get func(namespace, name string) (*v1.Pod, bool)) {
	for _, x := range s.all() {
		x.post(func(x *Actor) {
			pod, ok := get(x.d.Pod.Namespace, x.d.Pod.Name)
			if x.o.Mirror != nil {
				if !ok || MirrorOf(pod) == "" {
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

// Keep has events kept that are of no actor's pod, until Replay.
func (s *Set) Keep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.keep = true
}

// Replay delivers the events that were kept.
func (s *Set) Replay() {
	s.mu.Lock()
	early := s.mu.early
	s.mu.early, s.mu.keep = nil, false
	s.mu.Unlock()
	for _, e := range early {
		s.Deliver(e)
	}
}

// Deliver hands an event of the runtime to its pod's actor.
func (s *Set) Deliver(e *runtimeapi.ContainerEventResponse) {
	uid := runtime.PodOf(e)
	s.mu.Lock()
	x := s.mu.actors[uid]
	if x == nil && s.mu.keep {
		s.mu.early = append(s.mu.early, e)
	}
	s.mu.Unlock()
	if x != nil {
		x.post(func(x *Actor) { x.observe(e) })
	}
}

// Replace tells every actor what the runtime had of its pod when it was asked, at began.
func (s *Set) Replace(found map[types.UID]*runtime.Inventory, began time.Time) {
	for _, x := range s.all() {
		inv := found[x.uid]
		if inv == nil {
			inv = &runtime.Inventory{At: began}
		}
		x.post(func(x *Actor) { x.replace(inv) })
	}
}

// SetHostIPs tells the actors that the node has other addresses now.
func (s *Set) SetHostIPs(ips []string) {
	for _, x := range s.all() {
		x.post(func(x *Actor) { x.o.HostIPs = ips })
	}
}

// forgotten tells that a container has been removed.
func (s *Set) forgotten(id string) {
	if s.Forgotten != nil {
		s.Forgotten(id)
	}
}

// Evict ends a pod because the node is short of something. The channel is closed when
// the pod has ended; nil: there is no such pod.
func (s *Set) Evict(uid types.UID, e podstep.Eviction) <-chan struct{} {
	x := s.actor(uid)
	if x == nil {
		return nil
	}
	x.post(func(x *Actor) { x.evict(e) })
	return x.left
}
