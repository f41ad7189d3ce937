package podstep

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/kubelet/evict"
)

// ending says whether a pod is coming to its end, and what that makes of it.
type ending struct {
	yes bool
	// failed says that the pod ends as Failed whatever its containers did.
	failed          bool
	reason, message string
	// deleted says that it ends because the API wants it deleted, in its own time.
	deleted bool
	// grace overrides how long containers have to end by themselves.
	grace *int64
}

const minGrace = 2 * time.Second

// end decides whether the pod must end now (P4).
func (s *step) end() ending {
	switch status := &s.pod.Status; {
	case status.Phase == v1.PodFailed:
		return ending{yes: true, failed: true, reason: status.Reason, message: status.Message}
	case status.Phase == v1.PodSucceeded:
		return ending{yes: true, reason: status.Reason, message: status.Message}
	case s.d.Fail != nil:
		return ending{yes: true, failed: true, reason: s.d.Fail.Reason, message: s.d.Fail.Message}
	case s.evict != nil:
		reason := cmp.Or(s.evict.Reason, ReasonEvicted)
		if reason != ReasonTerminated { // which is told of the node
			s.do(Action{Op: EvictedEvent, ID: "evicted", Message: s.evict.Message})
		}
		return ending{yes: true, failed: true, reason: reason, message: s.evict.Message, grace: s.evict.Grace}
	case s.d.Gone:
		// Deleted by force, or the node was away for long: be quick, but fair.
		small := int64(minGrace / time.Second)
		return ending{yes: true, grace: &small}
	case s.pod.DeletionTimestamp != nil:
		return ending{yes: true, deleted: true, grace: s.pod.DeletionGracePeriodSeconds}
	}
	if deadline, ok := s.deadline(); ok && !s.now.Before(deadline) {
		const message = "Pod was active on the node longer than the specified deadline"
		s.do(Action{Op: DeadlineEvent, ID: "deadline", Message: message})
		return ending{yes: true, failed: true, reason: "DeadlineExceeded", message: message}
	}
	return ending{yes: s.completed()}
}

// eviction is why the node does without the pod; nil: it does not.
func (s *step) eviction() *Eviction {
	if s.d.Evict != nil || s.d.Gone || !s.o.Storage.Limited {
		return s.d.Evict
	}
	if message := evict.OverLimit(s.pod, s.o.Storage.Held); message != "" {
		return &Eviction{Message: message, Grace: new(int64)} // the shortest there is
	}
	return nil
}

// deadline is when the pod has been active for as long as it may.
func (s *step) deadline() (time.Time, bool) {
	if s.pod.Spec.ActiveDeadlineSeconds == nil {
		return time.Time{}, false
	}
	return s.startTime().Add(time.Duration(*s.pod.Spec.ActiveDeadlineSeconds) * time.Second), true
}

// startTime is when the node took the pod on, as the API shows it.
func (s *step) startTime() time.Time {
	if s.pod.Status.StartTime != nil {
		return s.pod.Status.StartTime.Time
	}
	return s.o.FirstSeen
}

// completed reports whether all work is done: every app container has ended for
// good, or an init container has failed for good.
func (s *step) completed() bool {
	if s.forsaken() {
		return true
	}
	for i := range s.pod.Spec.InitContainers {
		c := &s.pod.Spec.InitContainers[i]
		last := s.newest(c.Name)
		if kindOfInit(c) == kindInit && last != nil && last.State == Exited && last.ExitCode != 0 &&
			!s.mustRun(c, kindInit, last, s.current()) {
			return true
		}
	}
	for i := range s.pod.Spec.Containers {
		c := &s.pod.Spec.Containers[i]
		last := s.newest(c.Name)
		if last == nil || last.State != Exited || s.mustRun(c, kindApp, last, nil) {
			return false
		}
	}
	return true
}

// forsaken reports whether a pod that is never restarted has lost the sandbox in
// which it had begun.
func (s *step) forsaken() bool {
	if s.pod.Spec.RestartPolicy != v1.RestartPolicyNever || len(s.o.Sandboxes) == 0 || s.current() != nil || s.starting() {
		return false
	}
	for i := range s.pod.Spec.Containers {
		c := &s.pod.Spec.Containers[i]
		if len(c.RestartPolicyRules) > 0 || restartPolicy(s.pod, c, kindApp) != v1.RestartPolicyNever {
			return false
		}
	}
	return slices.ContainsFunc(s.o.Containers, func(c Container) bool {
		_, k := s.spec(c.Name)
		return k != kindEphemeral && c.State != Created
	})
}

// current is the newest sandbox if it can be used.
func (s *step) current() *Sandbox {
	if len(s.o.Sandboxes) > 0 && s.usable(&s.o.Sandboxes[0]) {
		return &s.o.Sandboxes[0]
	}
	return nil
}

// stopped reports whether nothing of the pod runs or is about to.
func (s *step) stopped() bool {
	for i := range s.o.Containers {
		if st := s.o.Containers[i].State; st == Running || st == Unknown {
			return false
		}
	}
	for _, sb := range s.o.Sandboxes {
		if sb.Ready || !sb.Stopped {
			return false
		}
	}
	for _, a := range s.o.Doing {
		switch a.Op {
		case WriteStatus, DeletePod, KeepStatus, RemoveMirror, EnsureImage, RunProbe, DrainPod:
		default:
			return false
		}
	}
	return true
}

// stop brings the pod down: its app containers together, then its sidecars,
// the last one first, then the sandboxes, then the rest.
func (s *step) stop() {
	s.overdue()
	if s.starting() {
		return // what it makes must be known before it can be undone
	}
	if s.stopContainers() {
		return
	}
	for i := range s.o.Sandboxes {
		if sb := &s.o.Sandboxes[i]; sb.Ready || !sb.Stopped {
			s.do(Action{Op: StopSandbox, ID: sb.ID})
		}
	}
	if s.stopped() && !s.o.CleanedUp {
		s.do(Action{Op: CleanUp})
	}
	if s.d.Gone && s.stopped() && s.o.CleanedUp {
		for i := range s.o.Sandboxes {
			s.do(Action{Op: RemoveSandbox, ID: s.o.Sandboxes[i].ID})
		}
	}
}

// leastOverdue is how long the runtime has at least to end what the node does without.
const leastOverdue = 10 * time.Second

// Patience is how long a pod that has so many seconds to end may take for it, all in all.
func Patience(grace int64) time.Duration {
	return max(time.Duration(grace)*time.Second*3/2, leastOverdue)
}

// overdue tells the user when a pod that the node does without is there for longer than it may be.
func (s *step) overdue() {
	if s.evict == nil || s.stopped() {
		return
	}
	since := s.o.EndingSince
	if since.IsZero() {
		since = s.now
	}
	if until := since.Add(Patience(s.graceSeconds(s.ending.grace))); s.now.Before(until) {
		s.wakeAt(until)
		return
	}
	s.do(Action{Op: OverdueEvent, ID: "overdue", Message: "Container runtime did not kill the pod within specified grace period."})
}

// starting reports whether a sandbox is being made.
func (s *step) starting() bool { return s.doing(Action{Op: CreateSandbox}) }

// stopContainers kills what runs, in order, and reports whether anything does.
func (s *step) stopContainers() bool {
	running := false
	sidecars := map[string]bool{}
	for i := range s.pod.Spec.InitContainers {
		if c := &s.pod.Spec.InitContainers[i]; kindOfInit(c) == kindSidecar {
			sidecars[c.Name] = true
		}
	}
	app := slices.DeleteFunc(slices.Clone(s.o.Containers), func(c Container) bool {
		return c.State != Running && c.State != Unknown || sidecars[c.Name]
	})
	draining := len(app) > 0 && s.draining()
	for i := range app {
		running = true
		s.endApp(&app[i], draining)
	}
	return s.stopSidecars(running || s.startingContainer())
}

// startingContainer reports whether a container is being started: that it runs is
// to be known before it is ended. A sandbox that is taken away from below its start
// would make a failure of that.
func (s *step) startingContainer() bool {
	for _, a := range s.o.Doing {
		if a.Op == StartContainer {
			return true
		}
	}
	return false
}

// stopSidecars has the preStop hooks of all sidecars run at once, beside the end
// of the app containers, and the sidecars themselves killed one after another
// when those are gone, or all together when the pod's time is up. It reports whether
// anything of the pod runs.
func (s *step) stopSidecars(appRuns bool) bool {
	running, late := appRuns, s.late()
	for i := len(s.pod.Spec.InitContainers) - 1; i >= 0; i-- {
		spec := &s.pod.Spec.InitContainers[i]
		c := s.newest(spec.Name)
		if kindOfInit(spec) != kindSidecar || c == nil || c.State != Running && c.State != Unknown {
			continue
		}
		waits := s.hook(spec, c, "")
		if (!running || late) && !waits {
			s.kill(c, s.graceLeft(c), KilledForEnd, "Stopping container "+spec.Name)
		}
		if running && !late {
			s.wakeAt(s.graceEnd())
		}
		running = true
	}
	return running
}

// graceEnd is when the pod's time to end is up.
func (s *step) graceEnd() time.Time {
	since := s.o.EndingSince
	if since.IsZero() {
		since = s.now
	}
	return since.Add(time.Duration(s.graceSeconds(s.ending.grace)) * time.Second)
}

// late reports whether the pod's time to end is up: nobody waits for a turn any more.
func (s *step) late() bool { return !s.now.Before(s.graceEnd()) }

// hook has the preStop hook of a container run ahead of its end; the message says
// that this begins with it. It reports whether the end must wait for it: as long as
// there is time.
func (s *step) hook(spec *v1.Container, c *Container, message string) bool {
	kill := Action{Op: KillContainer, ID: c.ID}
	if !hasPreStop(spec) || s.o.Hooked[c.ID] || s.doing(kill) || c.State != Running {
		return false
	}
	left := time.Duration(*s.graceLeft(c)) * time.Second
	if left <= 0 {
		return false
	}
	s.do(Action{Op: PreStop, Container: c.Name, ID: c.ID, Grace: left, Message: message})
	s.wakeAt(s.graceEnd())
	return true
}

// graceLeft is what the containers that ended before c have left of the grace
// period, in seconds: the whole pod has one. A kill under way has been given its
// share already; only a shorter period for all overtakes it.
func (s *step) graceLeft(c *Container) *int64 {
	seconds := s.graceSeconds(s.ending.grace)
	kill, doing := s.o.Doing[Action{Op: KillContainer, ID: c.ID}.Key()]
	if doing && kill.Grace <= time.Duration(seconds)*time.Second {
		return &seconds
	}
	if since := s.o.EndingSince; !since.IsZero() {
		seconds = max(seconds-int64(s.now.Sub(since)/time.Second), 0)
	}
	return &seconds
}

// graceSeconds is a grace period of its own, or else the pod's.
func (s *step) graceSeconds(own *int64) int64 {
	switch {
	case own != nil:
		return *own
	case s.pod.Spec.TerminationGracePeriodSeconds != nil:
		return *s.pod.Spec.TerminationGracePeriodSeconds
	}
	return 30
}

func (s *step) kill(c *Container, grace *int64, why KillReason, message string) {
	seconds := s.graceSeconds(grace)
	s.do(Action{
		Op: KillContainer, Container: c.Name, ID: c.ID, Why: why, Message: message,
		Grace: max(time.Duration(seconds)*time.Second, minGrace),
	})
}

// killUnwanted kills containers that must not run as they are. It returns true
// if the pod must not go on before they are gone.
func (s *step) killUnwanted(sb *Sandbox) bool {
	wait := false
	for i := range s.o.Containers {
		c := &s.o.Containers[i]
		if c.State != Running && c.State != Unknown || s.doing(Action{Op: StartContainer, Container: c.Name}) {
			continue
		}
		if sb == nil || c.SandboxID != sb.ID {
			s.kill(c, nil, KilledForProbe, "Pod sandbox changed, it will be killed and re-created.")
			wait = true
			continue
		}
		if c.State == Unknown {
			s.kill(c, nil, KilledForProbe, fmt.Sprintf("Container %s is in unknown state, try killing it before restart", c.Name))
			continue
		}
		s.killIfChanged(c, sb)
	}
	return wait
}

func (s *step) killIfChanged(c *Container, sb *Sandbox) {
	spec, k := s.spec(c.Name)
	if spec == nil || k == kindEphemeral {
		return
	}
	if c.Hash != Hash(spec) {
		if k != kindInit {
			s.kill(c, nil, KilledForChange, fmt.Sprintf("Container %s definition changed, will be restarted", c.Name))
		}
		return
	}
	if probe := s.o.Probes[c.ID]; probe.Failed != "" {
		message := fmt.Sprintf("Container %s failed %s probe", c.Name, probe.Failed)
		failed := *c
		failed.State, failed.ExitCode = Exited, 137
		if s.mustRun(spec, k, &failed, sb) {
			message += ", will be restarted"
		}
		s.kill(c, probe.Grace, KilledForProbe, message)
	}
}

// spec returns the container in the pod's spec that has the name, or nil.
func (s *step) spec(name string) (*v1.Container, kind) {
	for i := range s.pod.Spec.Containers {
		if c := &s.pod.Spec.Containers[i]; c.Name == name {
			return c, kindApp
		}
	}
	for i := range s.pod.Spec.InitContainers {
		if c := &s.pod.Spec.InitContainers[i]; c.Name == name {
			return c, kindOfInit(c)
		}
	}
	for i := range s.pod.Spec.EphemeralContainers {
		if e := &s.pod.Spec.EphemeralContainers[i]; e.Name == name {
			c := v1.Container(e.EphemeralContainerCommon)
			return &c, kindEphemeral
		}
	}
	return nil, kindApp
}
