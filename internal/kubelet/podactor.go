package kubelet

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/kubelet/cri"
	"github.com/kemudi/kemudi/internal/kubelet/evict"
	"github.com/kemudi/kemudi/internal/kubelet/podstep"
	"github.com/kemudi/kemudi/internal/task"
)

// actor owns one pod on the node. All but uid and box belongs to its goroutine (K2).
type actor struct {
	a    *Agent
	uid  types.UID
	box  mailbox
	done chan struct{} // closed when the actor has ended

	d   podstep.Desired
	o   podstep.Observed
	rev int64 // of d.Pod

	status  v1.PodStatus // as the last step made it
	ops     *task.Group
	handles map[string]*handle // of the actions under way, by their key
	told    map[string]bool    // IDs of the events of the step that were told
	removed map[string]bool    // IDs of containers that were removed: late news of them is stale
	tries   map[string]int     // failures in a row of actions, by their key
	probes  map[string]*probes // of running containers, by their ID

	refresh bool                       // the sources of volumes have changed
	renewAt time.Time                  // when a token of a volume must be renewed; zero: never
	limited bool                       // the pod may use only so much local storage
	weighAt time.Time                  // when that is to be looked at next
	static  *static                    // nil: the pod is the API's
	waiters map[string][]chan struct{} // closed when the container with the ID has ended
}

// handle is an action under way.
type handle struct {
	cancel     context.CancelFunc // gives the action up
	cancelHook context.CancelFunc // gives up only the hook it waits for; may be nil
}

// mailbox holds what is posted to an actor until it has time.
type mailbox struct {
	ready chan struct{} // holds one token: there is something
	mu    struct {
		sync.Mutex
		posts []func(*actor)
	}
}

// post has f run by the actor's goroutine. It never blocks.
func (x *actor) post(f func(*actor)) {
	x.box.mu.Lock()
	x.box.mu.posts = append(x.box.mu.posts, f)
	x.box.mu.Unlock()
	select {
	case x.box.ready <- struct{}{}:
	default: // it has been told
	}
}

func (x *actor) takePosts() {
	x.box.mu.Lock()
	posts := x.box.mu.posts
	x.box.mu.posts = nil
	x.box.mu.Unlock()
	for _, f := range posts {
		f(x)
	}
}

func newActor(a *Agent, pod *v1.Pod, rev int64) *actor {
	x := &actor{
		a: a, uid: pod.UID, done: make(chan struct{}), d: podstep.Desired{Pod: pod}, rev: rev,
		handles: map[string]*handle{}, told: map[string]bool{}, removed: map[string]bool{}, tries: map[string]int{},
		probes: map[string]*probes{}, waiters: map[string][]chan struct{}{},
	}
	x.limited = a.weigh != nil && evict.HasLimits(pod)
	x.box.ready = make(chan struct{}, 1)
	x.ops = task.NewGroup(a.group.Context())
	x.o = podstep.Observed{
		FirstSeen: time.Now(), HostIPs: a.nodeIPs(), Runtime: a.facts.runtime,
		Images: map[string]podstep.Image{}, Failures: map[string]podstep.Failure{}, Probes: map[string]podstep.Probes{},
		Killed: map[string]podstep.KillReason{}, Hooked: map[string]bool{}, Doing: map[string]podstep.Action{}, Resized: map[string]v1.ResourceRequirements{},
	}
	return x
}

// run steps the pod until nothing is left of it or the agent ends; then containers
// stay as they are (K1).
func (x *actor) run() error {
	defer x.ops.Wait()
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	defer timer.Stop()
	for {
		x.takePosts()
		x.followProbes()
		r := podstep.Next(x.d, x.o, time.Now())
		if x.status = r.Status; x.status.Phase == v1.PodFailed || x.status.Phase == v1.PodSucceeded {
			x.a.release(x.uid)
		}
		if r.Done {
			if err := x.a.forgetOnDisk(x.uid); err != nil {
				x.a.o.Log.Warn("remove the last of a pod", "pod", x.name(), "err", err)
			}
			return nil
		}
		for _, act := range r.Actions {
			x.begin(act)
		}
		if r.Ending {
			if x.o.EndingSince.IsZero() {
				x.o.EndingSince = time.Now()
			}
			x.giveUpStarting()
		}
		x.stepMirror()
		wake := earliest(r.Wake, x.stepProbes(r.Ending), x.stepVolumes(r.Ending), x.stepStorage(r.Ending))
		timer.Stop()
		if !wake.IsZero() {
			timer.Reset(max(time.Until(wake), 0))
		}
		select {
		case <-x.box.ready:
		case <-timer.C:
		case <-x.ops.Context().Done(): // the agent has been told to, or an action has panicked
			return x.ops.Wait()
		}
	}
}

// earliest returns the earliest time that is not zero.
func earliest(times ...time.Time) (first time.Time) {
	for _, t := range times {
		if first.IsZero() || !t.IsZero() && t.Before(first) {
			first = t
		}
	}
	return first
}

// begin starts an action; its outcome comes back as a post.
func (x *actor) begin(act podstep.Action) {
	switch {
	case act.Op == podstep.BackOffEvent && !x.told[act.ID]:
		x.event(act.Container, v1.EventTypeWarning, "BackOff", act.Message)
	case act.Op == podstep.DeadlineEvent && !x.told[act.ID]:
		x.event("", v1.EventTypeNormal, "DeadlineExceeded", act.Message)
	}
	if act.Op == podstep.BackOffEvent || act.Op == podstep.DeadlineEvent {
		x.told[act.ID] = true
		return
	}
	key := act.Key()
	ctx, cancel := context.WithCancel(x.ops.Context())
	h := &handle{cancel: cancel}
	x.o.Doing[key] = act
	x.handles[key] = h
	if act.Op == podstep.KillContainer {
		x.o.Killed[act.ID] = act.Why
		if hook := x.handles[podstep.Action{Op: podstep.PreStop, ID: act.ID}.Key()]; hook != nil {
			hook.cancel() // its time is up
			x.o.Hooked[act.ID] = true
		}
	}
	do := x.prepare(act, h)
	x.ops.Go(key, func(context.Context) error {
		defer cancel()
		after := do(ctx)
		x.post(func(x *actor) {
			if x.handles[key] == h { // not overtaken
				delete(x.handles, key)
				delete(x.o.Doing, key)
			}
			if after != nil {
				after(x)
			}
		})
		return nil
	})
}

// giveUpStarting cancels what makes no sense any more once the pod is to end.
func (x *actor) giveUpStarting() {
	for _, key := range slices.Sorted(maps.Keys(x.handles)) {
		h := x.handles[key]
		switch x.o.Doing[key].Op {
		case podstep.EnsureImage, podstep.PrepareVolumes:
			h.cancel()
		case podstep.StartContainer:
			if h.cancelHook != nil {
				h.cancelHook()
			}
		}
	}
}

// update takes in the pod as the API has it at revision rev.
func (x *actor) update(pod *v1.Pod, rev int64) {
	if rev <= x.rev || pod.UID != x.uid {
		return
	}
	annotations := !maps.Equal(pod.Annotations, x.d.Pod.Annotations)
	if pod.Generation != x.d.Pod.Generation || annotations {
		clear(x.o.Failures) // perhaps it works now
	}
	x.refresh = x.refresh || annotations || !maps.Equal(pod.Labels, x.d.Pod.Labels)
	resources := pod.Generation != x.d.Pod.Generation
	x.d.Pod, x.rev = pod, rev
	if resources {
		x.d.Deferred = x.a.reclaim(x)
	}
}

func (x *actor) gone(pod *v1.Pod) {
	if pod.UID == x.uid {
		x.d.Gone = true
	}
}

// objectRevision is the revision of an object from the API; 0 if it has none.
func objectRevision(obj metav1.Object) int64 {
	rev, err := strconv.ParseInt(obj.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0
	}
	return rev
}

// adopt takes in what the runtime had of the pod before this process.
func (x *actor) adopt(inv *inventory) {
	for _, s := range inv.sandboxes {
		x.observeSandbox(s)
	}
	for _, c := range inv.containers {
		x.observeContainer(c.status, c.sandbox)
	}
	if t := x.d.Pod.Status.StartTime; t != nil {
		x.o.FirstSeen = t.Time
	}
}

// replace takes in all that the runtime has of the pod. What was made since it
// was asked stays.
func (x *actor) replace(inv *inventory) {
	x.o.Sandboxes = slices.DeleteFunc(x.o.Sandboxes, func(s podstep.Sandbox) bool {
		return s.CreatedAt.Before(inv.at) && !slices.ContainsFunc(inv.sandboxes, func(f *runtimeapi.PodSandboxStatus) bool { return f.Id == s.ID })
	})
	x.o.Containers = slices.DeleteFunc(x.o.Containers, func(c podstep.Container) bool {
		return c.CreatedAt.Before(inv.at) && !slices.ContainsFunc(inv.containers, func(f foundContainer) bool { return f.status.Id == c.ID })
	})
	x.adopt(inv)
}

// observe takes in an event of the runtime, which carries the whole pod. Events
// may overtake each other, so nothing goes back to an earlier state.
func (x *actor) observe(e *runtimeapi.ContainerEventResponse) {
	s := e.PodSandboxStatus
	if e.ContainerEventType == runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT {
		x.forget(e.ContainerId)
	}
	if s == nil {
		return
	}
	x.observeSandbox(s)
	for _, c := range e.ContainersStatuses {
		x.observeContainer(c, s.Id)
	}
}

// forget drops a sandbox or container that has been removed.
func (x *actor) forget(id string) {
	x.removed[id] = true
	x.a.noteLog(&runtimeapi.ContainerStatus{Id: id, State: runtimeapi.ContainerState_CONTAINER_EXITED})
	x.a.forgetRead(id)
	x.o.Sandboxes = slices.DeleteFunc(x.o.Sandboxes, func(s podstep.Sandbox) bool { return s.ID == id })
	for i := range x.o.Containers {
		if c := &x.o.Containers[i]; c.SandboxID == id {
			x.a.forgetRead(c.ID)
		}
	}
	x.o.Containers = slices.DeleteFunc(x.o.Containers, func(c podstep.Container) bool { return c.ID == id || c.SandboxID == id })
	delete(x.o.Probes, id)
	delete(x.o.Killed, id)
	delete(x.o.Hooked, id)
	delete(x.o.Resized, id)
	delete(x.told, id)
	x.tellExit(id)
}

// tellExit tells those who wait for the container's end.
func (x *actor) tellExit(id string) {
	for _, w := range x.waiters[id] {
		close(w)
	}
	delete(x.waiters, id)
}

func (x *actor) observeSandbox(s *runtimeapi.PodSandboxStatus) {
	if x.removed[s.Id] {
		return
	}
	now := cri.ObservedSandbox(s)
	if ips := x.a.nodeIPs(); len(ips) > 0 {
		cri.SortIPs(now.IPs, ips[0])
	}
	i := slices.IndexFunc(x.o.Sandboxes, func(o podstep.Sandbox) bool { return o.ID == s.Id })
	if i < 0 {
		x.o.Sandboxes = append(x.o.Sandboxes, now)
		cri.Sort(&x.o)
		return
	}
	old := &x.o.Sandboxes[i]
	now.Ready = now.Ready && old.Ready
	now.Stopped = old.Stopped
	if len(now.IPs) == 0 {
		now.IPs = old.IPs
	}
	*old = now
}

func (x *actor) observeContainer(s *runtimeapi.ContainerStatus, sandbox string) {
	if x.removed[s.Id] {
		return
	}
	x.a.noteLog(s)
	now := cri.ObservedContainer(s, sandbox)
	i := slices.IndexFunc(x.o.Containers, func(o podstep.Container) bool { return o.ID == s.Id })
	if i < 0 {
		x.exited(&now, s)
		x.o.Containers = append(x.o.Containers, now)
		cri.Sort(&x.o)
		return
	}
	old := &x.o.Containers[i]
	switch {
	case rank(now.State) < rank(old.State):
		return // stale
	case old.State == podstep.Exited:
		if now.Reason == "OOMKilled" {
			old.Reason = now.Reason // the kernel's verdict may come later
		}
		return
	}
	x.exited(&now, s)
	*old = now
}

// rank orders states as a container goes through them.
func rank(s podstep.State) int {
	return slices.Index([]podstep.State{podstep.Created, podstep.Unknown, podstep.Running, podstep.Exited}, s)
}

// exited completes what is known of a container that has just ended.
func (x *actor) exited(c *podstep.Container, s *runtimeapi.ContainerStatus) {
	if c.State != podstep.Exited {
		return
	}
	delete(x.o.Probes, c.ID)
	x.tellExit(c.ID)
	if message, ok := x.a.terminationMessage(x.ops.Context(), s); ok {
		c.Message = message
	}
}

// event tells the user about a container of the pod (empty: the pod itself).
func (x *actor) event(container, kind, reason, message string) {
	x.a.about(x.d.Pod, container).event(kind, reason, message)
}

// subject is what an event is about.
type subject struct {
	a         *Agent
	pod       *v1.Pod
	container string // empty: the pod itself
}

func (a *Agent) about(pod *v1.Pod, container string) subject { return subject{a, pod, container} }

func (s subject) event(kind, reason, message string) {
	if s.container == "" {
		s.a.o.Events.Event(s.pod, kind, reason, message)
		return
	}
	s.a.o.Events.Event(client.Part{Object: s.pod, FieldPath: cri.FieldPath(s.pod, s.container)}, kind, reason, message)
}
