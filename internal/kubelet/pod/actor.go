package pod

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/kubelet/contain"
	"github.com/kemudi/kemudi/internal/kubelet/container"
	"github.com/kemudi/kemudi/internal/kubelet/cri"
	"github.com/kemudi/kemudi/internal/kubelet/evict"
	"github.com/kemudi/kemudi/internal/kubelet/pin"
	"github.com/kemudi/kemudi/internal/kubelet/podstep"
	"github.com/kemudi/kemudi/internal/kubelet/runtime"
	"github.com/kemudi/kemudi/internal/task"
)

// Actor owns one pod on the node. Its state, from d on, belongs to its goroutine (P1).
type Actor struct {
	s     *Set
	uid   types.UID
	box   mailbox
	done  chan struct{} // closed when the actor has ended
	left  chan struct{} // closed when the pod has finished, or is gone
	onEnd func(*Actor)  // called after that; may be nil

	d   podstep.Desired
	o   podstep.Observed
	rev int64     // of d.Pod
	now time.Time // when the actor began its turn: all that it notes in a turn happens at once

	status   v1.PodStatus // as the last step made it
	ops      *task.Group
	handles  map[string]*handle         // of the actions under way, by their key
	reported map[string]bool            // IDs of the events of the step that were reported
	removed  map[string]bool            // IDs of containers that were removed: late updates of them are stale
	probes   map[string]*probes         // of running containers, by their ID
	waiters  map[string][]chan struct{} // closed when the container with the ID has ended
	probed   map[probeKey]*probed       // nil: none has been probed
	starting *starting                  // nil: it runs, or did before it was seen, or never will
	turn     turn                       // in which something is under way
	placed   map[string]pin.Place       // where running containers have been told to run, by their ID; what is missing is not known
}

// UID is that of the actor's pod.
func (x *Actor) UID() types.UID { return x.uid }

// handle is an action under way.
type handle struct {
	act    podstep.Action
	work   work               // nil: it could not be begun
	cancel context.CancelFunc // gives it up
}

// mailbox holds what is posted to an actor until it has time.
type mailbox struct {
	ready chan struct{} // holds one token: there is something
	mu    struct {
		sync.Mutex
		posts []func(*Actor)
		since time.Time // when the first of them came
	}
}

// behind is how long the first of what is posted has waited.
func (x *Actor) behind() time.Duration {
	x.box.mu.Lock()
	defer x.box.mu.Unlock()
	if len(x.box.mu.posts) == 0 {
		return 0
	}
	return time.Since(x.box.mu.since)
}

// post has f run by the actor's goroutine. It never blocks.
func (x *Actor) post(f func(*Actor)) {
	x.box.mu.Lock()
	if len(x.box.mu.posts) == 0 {
		x.box.mu.since = time.Now()
	}
	x.box.mu.posts = append(x.box.mu.posts, f)
	x.box.mu.Unlock()
	select {
	case x.box.ready <- struct{}{}:
	default: // it has been told
	}
}

func (x *Actor) takePosts() {
	x.box.mu.Lock()
	posts := x.box.mu.posts
	x.box.mu.posts = nil
	x.box.mu.Unlock()
	for _, f := range posts {
		contain.Run(x.s.Runner.Log, "update", x.name(), func() { f(x) })
	}
}

func newActor(s *Set, pod *v1.Pod, rev int64) *Actor {
	x := &Actor{
		s: s, uid: pod.UID, done: make(chan struct{}), left: make(chan struct{}), d: podstep.Desired{Pod: pod}, rev: rev,
		now: time.Now(), handles: map[string]*handle{}, reported: map[string]bool{}, removed: map[string]bool{},
		probes: map[string]*probes{}, waiters: map[string][]chan struct{}{}, placed: map[string]pin.Place{},
	}
	x.box.ready = make(chan struct{}, 1)
	x.ops = task.NewGroup(s.group.Context())
	if p := pod.Status.Phase; p == "" || p == v1.PodPending {
		x.starting = &starting{since: x.now}
	}
	x.o = podstep.Observed{
		FirstSeen: x.now, HostIPs: s.Runner.Node.Addresses(), Runtime: s.runtime, RestartWait: s.RestartWait,
		Storage: podstep.Storage{Limited: s.Usage != nil && evict.HasLimits(pod), Every: s.Every},
		Drain:   podstep.Drain{Told: s.Drained != nil},
		Images:  map[string]podstep.Image{}, Failures: map[string]podstep.Failure{}, Probes: map[string]podstep.Probes{},
		Killed: map[string]podstep.KillReason{}, Hooked: map[string]bool{}, Doing: map[string]podstep.Action{}, Resized: map[string]v1.ResourceRequirements{},
	}
	return x
}

// run steps the pod until nothing is left of it or the agent ends; then containers
// stay as they are (P3).
func (x *Actor) run() error {
	defer x.endTurn() // when what is under way has ended
	defer x.ops.Wait()
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	defer timer.Stop()
	again := contain.Backoff()
	for {
		x.now = time.Now()
		x.takePosts()
		var done bool
		var wake time.Time
		if !contain.Run(x.s.Runner.Log, "step", x.name(), func() { wake, done = x.step() }) {
			if task.Sleep(x.ops.Context(), again.Next()) != nil { // what is posted meanwhile does not hurry it
				return x.ops.Wait()
			}
			continue
		}
		again.Reset()
		if done {
			return nil
		}
		timer.Stop()
		if !wake.IsZero() {
			timer.Reset(max(time.Until(wake), 0))
		}
		select {
		case <-x.box.ready:
		case <-timer.C:
		case <-x.ops.Context().Done(): // the agent has been told to
			return x.ops.Wait()
		}
	}
}

// step does what is due for the pod now, and returns when to look again at the
// latest (zero: when there is an update), or that nothing is left of it.
func (x *Actor) step() (wake time.Time, done bool) {
	x.followProbes()
	r := podstep.Next(x.d, x.o, x.now)
	if x.status = r.Status; x.status.Phase == v1.PodFailed || x.status.Phase == v1.PodSucceeded {
		x.s.Runner.Ledger.Release(x.uid)
		x.s.Runner.Pins.Release(x.uid)
		x.leave()
	}
	x.s.metrics.runs(x)
	x.tell()
	if r.Done {
		x.endTurn()
		x.s.Runner.Pins.Release(x.uid)
		if err := x.s.Runner.Disk.Forget(x.uid); err != nil {
			x.s.Runner.Log.Warn("remove the last of a pod", "pod", x.name(), "err", err)
		}
		return time.Time{}, true
	}
	x.beginTurn(r)
	for _, act := range r.Actions {
		x.begin(act)
	}
	x.rest()
	if r.Ending {
		if x.o.EndingSince.IsZero() {
			x.o.EndingSince = x.now
		}
		x.giveUpStarting()
	}
	return r.Wake, false
}

// leave says that the pod has finished, or is gone.
func (x *Actor) leave() {
	select {
	case <-x.left: // it has been told
	default:
		close(x.left)
	}
}

// begin starts an action; its outcome comes back as a post.
func (x *Actor) begin(act podstep.Action) {
	if act.Op.Tells() {
		x.reportOnce(act)
		return
	}
	if act.Op == podstep.KillContainer {
		x.o.Killed[act.ID] = act.Why
		x.giveUpDrain()
		if x.handles[podstep.Action{Op: podstep.PreStop, ID: act.ID}.Key()] != nil {
			x.o.Hooked[act.ID] = true // its time is up: what is left of it has as long as the container
		}
	}
	ctx, cancel := context.WithCancel(x.within(act.Op))
	h := &handle{act: act, cancel: cancel}
	key, name := act.Key(), x.name()
	x.o.Doing[key], x.handles[key] = act, h
	contain.Run(x.s.Runner.Log, key, name, func() { h.work = x.prepare(act) })
	x.ops.Go(key, func(context.Context) error {
		defer cancel()
		err := errPanicked
		if h.work != nil {
			contain.Run(x.s.Runner.Log, key, name, func() { err = h.work.do(ctx) })
		}
		givenUp := ctx.Err() != nil
		x.post(func(x *Actor) { x.ended(h, err, givenUp) })
		return nil
	})
}

// reportOnce tells the user what the step has to say, once for each ID.
func (x *Actor) reportOnce(act podstep.Action) {
	if x.reported[act.ID] {
		return
	}
	switch act.Op {
	case podstep.BackOffEvent:
		x.event(act.Container, v1.EventTypeWarning, "BackOff", act.Message)
	case podstep.DeadlineEvent:
		x.event("", v1.EventTypeNormal, "DeadlineExceeded", act.Message)
	case podstep.EvictedEvent:
		x.s.Runner.Log.Info("evict pod", "pod", x.name(), "why", act.Message)
		if x.d.Evict != nil && x.d.Evict.Reason == podstep.ReasonPreempting {
			x.event("", v1.EventTypeWarning, "Preempting", act.Message)
		} else {
			x.evictedEvent(act.Message)
		}
	case podstep.OverdueEvent:
		x.event("", v1.EventTypeWarning, "ExceededGracePeriod", act.Message)
	}
	x.reported[act.ID] = true
}

// ended takes in the outcome of an action: the step decides when one that has
// failed is tried again.
func (x *Actor) ended(h *handle, err error, givenUp bool) {
	key := h.act.Key()
	if x.handles[key] == h { // not overtaken
		delete(x.handles, key)
		delete(x.o.Doing, key)
	}
	switch {
	case err == nil:
		delete(x.o.Failures, key)
	case !givenUp:
		x.failed(h.act, err)
	}
	if h.work != nil {
		h.work.note(x, err)
	}
}

// failed notes why an action did not work.
func (x *Actor) failed(act podstep.Action, err error) {
	key := act.Key()
	f := podstep.Failure{Message: runtime.Message(err), At: x.now, Count: x.o.Failures[key].Count + 1}
	var start *container.StartError
	if errors.As(err, &start) {
		f.Reason, f.Message = start.Reason, runtime.Message(start.Err)
	}
	if errors.Is(err, container.ErrNetwork) { // it has been waited for already, and may be there any moment
		f.Count = 1
	}
	x.o.Failures[key] = f
	x.turn.span.Fail(err)
	switch {
	case reportedByEvents(act.Op):
		return
	case apierrors.IsNotFound(err): // that the object is gone will be heard by itself
		return
	case errors.Is(err, errPanicked): // it has been told with its stack
		return
	case act.Op == podstep.KillContainer || act.Op == podstep.StopSandbox: // who waits for the pod's end looks there
		x.event("", v1.EventTypeWarning, "FailedKillPod", "error killing pod: "+f.Message)
	case act.Op == podstep.RemoveContainer || act.Op == podstep.RemoveSandbox: // which keep a place on the node's disk
		x.s.Runner.Events.Event(x.s.Runner.Node.Self(), v1.EventTypeWarning, "ContainerGCFailed", f.Message)
	}
	x.s.Runner.Log.Warn("pod action failed", "action", key, "pod", x.name(), "err", err, "retry", act.Op.RetryAfter(f.Count))
}

// reportedByEvents reports whether users are told when an action of the kind fails.
func reportedByEvents(op podstep.Op) bool {
	switch op {
	case podstep.AllocateDevices, podstep.PrepareClaims, podstep.PrepareVolumes, podstep.RefreshVolumes, podstep.CreateSandbox, podstep.StartContainer, podstep.ResizePod:
		return true
	}
	return false
}

// giveUpStarting cancels what makes no sense any more once the pod is to end.
func (x *Actor) giveUpStarting() {
	for _, key := range slices.Sorted(maps.Keys(x.handles)) {
		switch h := x.handles[key]; h.act.Op {
		case podstep.AllocateDevices, podstep.PrepareClaims, podstep.EnsureImage, podstep.PrepareVolumes, podstep.StartContainer:
			h.cancel()
		}
	}
}

// update takes in the pod as the API has it at revision rev.
func (x *Actor) update(pod *v1.Pod, rev int64) {
	if rev <= x.rev || pod.UID != x.uid {
		return
	}
	annotations := !maps.Equal(pod.Annotations, x.d.Pod.Annotations)
	if pod.Generation != x.d.Pod.Generation || annotations {
		clear(x.o.Failures) // perhaps it works now
	}
	if annotations || !maps.Equal(pod.Labels, x.d.Pod.Labels) {
		x.volumesStale()
	}
	before := x.d.Pod
	x.d.Pod, x.rev = pod, rev
	if !sameUses(before, pod) {
		x.o.Volumes.Ready = false // new containers wait for those of theirs that nobody has used so far
	}
	if pod.Generation != before.Generation {
		x.s.metrics.resizes.requested(before, pod)
		x.resize(triggerUpdated, before)
	}
}

func (x *Actor) gone(pod *v1.Pod) {
	if pod.UID == x.uid {
		x.d.Gone = true
		x.s.Runner.Ledger.Release(x.uid) // it may have been admitted after Set.Gone
		clear(x.o.Failures)              // what is asked for now is another thing
	}
}

// adopt takes in what the runtime had of the pod before this process.
func (x *Actor) adopt(inv *runtime.Inventory) {
	for _, s := range inv.Sandboxes {
		x.observeSandbox(s)
	}
	for _, c := range inv.Containers {
		x.observeContainer(c.Status, c.Sandbox)
	}
	if t := x.d.Pod.Status.StartTime; t != nil {
		x.o.FirstSeen = t.Time
	}
}

// replace takes in all that the runtime has of the pod. What was made since it
// was asked stays.
func (x *Actor) replace(inv *runtime.Inventory) {
	x.o.Sandboxes = slices.DeleteFunc(x.o.Sandboxes, func(s podstep.Sandbox) bool {
		return s.CreatedAt.Before(inv.At) && !slices.ContainsFunc(inv.Sandboxes, func(f *runtimeapi.PodSandboxStatus) bool { return f.Id == s.ID })
	})
	x.o.Containers = slices.DeleteFunc(x.o.Containers, func(c podstep.Container) bool {
		return c.CreatedAt.Before(inv.At) && !slices.ContainsFunc(inv.Containers, func(f runtime.Found) bool { return f.Status.Id == c.ID })
	})
	x.adopt(inv)
}

// observe takes in an event of the runtime, which carries the whole pod. Events
// may overtake each other, so nothing goes back to an earlier state.
func (x *Actor) observe(e *runtimeapi.ContainerEventResponse) {
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
func (x *Actor) forget(id string) {
	x.removed[id] = true
	x.s.Runner.Disk.Note(&runtimeapi.ContainerStatus{Id: id, State: runtimeapi.ContainerState_CONTAINER_EXITED})
	x.s.forgotten(id)
	x.o.Sandboxes = slices.DeleteFunc(x.o.Sandboxes, func(s podstep.Sandbox) bool { return s.ID == id })
	for i := range x.o.Containers {
		if c := &x.o.Containers[i]; c.SandboxID == id {
			x.s.forgotten(c.ID)
		}
	}
	x.o.Containers = slices.DeleteFunc(x.o.Containers, func(c podstep.Container) bool { return c.ID == id || c.SandboxID == id })
	x.endProbes(id)
	delete(x.o.Killed, id)
	delete(x.o.Hooked, id)
	delete(x.o.Resized, id)
	delete(x.placed, id)
	delete(x.reported, id)
	x.tellExit(id)
}

// tellExit tells those who wait for the container's end.
func (x *Actor) tellExit(id string) {
	for _, w := range x.waiters[id] {
		close(w)
	}
	delete(x.waiters, id)
}

func (x *Actor) observeSandbox(s *runtimeapi.PodSandboxStatus) {
	if x.removed[s.Id] {
		return
	}
	now := cri.ObservedSandbox(s)
	if ips := x.s.Runner.Node.Addresses(); len(ips) > 0 {
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

func (x *Actor) observeContainer(s *runtimeapi.ContainerStatus, sandbox string) {
	if x.removed[s.Id] {
		return
	}
	x.s.Runner.Disk.Note(s)
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
func (x *Actor) exited(c *podstep.Container, s *runtimeapi.ContainerStatus) {
	if c.State != podstep.Exited {
		return
	}
	if c.FinishedAt.After(x.s.began) {
		x.s.metrics.ended(x.d.Pod, c.Name, c.ExitCode)
	}
	x.endProbes(c.ID)
	x.tellExit(c.ID)
	if message, ok := x.s.Runner.Disk.TerminationMessage(x.ops.Context(), s); ok {
		c.Message = message
	}
}

// event tells the user about a container of the pod (empty: the pod itself).
func (x *Actor) event(container, kind, reason, message string) {
	x.s.Runner.About(x.d.Pod, container).Event(kind, reason, message)
}
