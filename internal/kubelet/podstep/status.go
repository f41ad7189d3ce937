package podstep

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
)

// Reasons of waiting containers that the step itself gives.
const (
	reasonContainerCreating = "ContainerCreating"
	reasonPodInitializing   = "PodInitializing"
	reasonCrashLoopBackOff  = "CrashLoopBackOff"
	reasonStatusUnknown     = "ContainerStatusUnknown"
)

// status makes the pod's status: what this node knows, over what others wrote.
func (s *step) status() v1.PodStatus {
	st := *s.pod.Status.DeepCopy()
	st.ObservedGeneration = s.pod.Generation
	start := apiTime(s.startTime())
	st.StartTime = &start
	if st.QOSClass == "" {
		st.QOSClass = core.QOSClass(s.pod)
	}
	s.setAddresses(&st)
	st.InitContainerStatuses, st.ContainerStatuses, st.EphemeralContainerStatuses = nil, nil, nil
	for i := range s.pod.Spec.InitContainers {
		c := &s.pod.Spec.InitContainers[i]
		st.InitContainerStatuses = append(st.InitContainerStatuses, s.containerStatus(c, kindOfInit(c)))
	}
	for i := range s.pod.Spec.Containers {
		st.ContainerStatuses = append(st.ContainerStatuses, s.containerStatus(&s.pod.Spec.Containers[i], kindApp))
	}
	for i := range s.pod.Spec.EphemeralContainers {
		c := v1.Container(s.pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		st.EphemeralContainerStatuses = append(st.EphemeralContainerStatuses, s.containerStatus(&c, kindEphemeral))
	}
	s.setPodResources(&st)
	s.setLost(&st)
	s.setPhase(&st)
	s.setConditions(&st)
	if s.rejected() && st.Phase == v1.PodFailed { // nobody has tried to run them
		st.InitContainerStatuses, st.ContainerStatuses, st.EphemeralContainerStatuses = nil, nil, nil
	}
	return st
}

// rejected reports whether the node would not take the pod.
func (s *step) rejected() bool {
	nothing := len(s.o.Containers) == 0 && len(s.o.Sandboxes) == 0
	return nothing && (s.d.Fail != nil || s.pod.Status.Phase == v1.PodFailed && len(s.pod.Status.ContainerStatuses) == 0)
}

// setLost gives the containers of a pod that has ended, but of which no end is
// known, one that is a failure: nobody must take such a pod for one that did its
// work. App containers whose turn never came, because the pod did not get past its
// init containers, go on waiting, and so do the init containers that come last and
// were never tried. A pod that the node has rejected had no containers to lose.
func (s *step) setLost(st *v1.PodStatus) {
	if phase := s.pod.Status.Phase; !s.ending.yes || !s.stopped() || s.d.Fail != nil || phase == v1.PodFailed || phase == v1.PodSucceeded {
		return
	}
	lists := [][]v1.ContainerStatus{st.InitContainerStatuses[:tried(st.InitContainerStatuses)]}
	if wasInitialized(st) {
		lists = append(lists, st.ContainerStatuses)
	}
	for _, list := range lists {
		for i := range list {
			if cs := &list[i]; cs.State.Terminated == nil {
				cs.State = v1.ContainerState{Terminated: statusUnknown("The container could not be located when the pod was terminated")}
			}
		}
	}
}

// tried is how many init containers, from the first on, have had their turn: the
// first one always has.
func tried(list []v1.ContainerStatus) int {
	for i := len(list) - 1; i > 0; i-- {
		if hasRun(&list[i]) {
			return i + 1
		}
	}
	return min(len(list), 1)
}

// wasInitialized reports whether app containers have had their turn.
func wasInitialized(st *v1.PodStatus) bool {
	if len(st.InitContainerStatuses) == 0 || slices.ContainsFunc(st.ContainerStatuses, func(cs v1.ContainerStatus) bool { return hasRun(&cs) }) {
		return true
	}
	last := &st.InitContainerStatuses[len(st.InitContainerStatuses)-1]
	for _, state := range []v1.ContainerState{last.State, last.LastTerminationState} {
		if t := state.Terminated; t != nil && t.ExitCode == 0 {
			return true
		}
	}
	return false
}

func hasRun(cs *v1.ContainerStatus) bool {
	return cs.State.Waiting == nil || cs.LastTerminationState.Terminated != nil
}

// apiTime is a time as the API holds it: whole seconds.
func apiTime(t time.Time) metav1.Time { return metav1.Time{Time: t.Truncate(time.Second)} }

func (s *step) setAddresses(st *v1.PodStatus) {
	if len(s.o.HostIPs) > 0 {
		st.HostIP, st.HostIPs = s.o.HostIPs[0], nil
		for _, ip := range s.o.HostIPs {
			st.HostIPs = append(st.HostIPs, v1.HostIP{IP: ip})
		}
	}
	var ips []string
	if len(s.o.Sandboxes) > 0 {
		ips = s.o.Sandboxes[0].IPs
	}
	if s.pod.Spec.HostNetwork {
		ips = s.o.HostIPs
	}
	if len(ips) == 0 {
		return // what the API shows stays: a finished pod keeps its last address
	}
	st.PodIP, st.PodIPs = ips[0], nil
	for _, ip := range ips {
		st.PodIPs = append(st.PodIPs, v1.PodIP{IP: ip})
	}
}

func oldStatus(st *v1.PodStatus, name string) *v1.ContainerStatus {
	for _, list := range [][]v1.ContainerStatus{st.ContainerStatuses, st.InitContainerStatuses, st.EphemeralContainerStatuses} {
		if i := slices.IndexFunc(list, func(c v1.ContainerStatus) bool { return c.Name == name }); i >= 0 {
			return &list[i]
		}
	}
	return nil
}

func (s *step) containerStatus(c *v1.Container, k kind) v1.ContainerStatus {
	last := s.newest(c.Name)
	old := oldStatus(&s.pod.Status, c.Name)
	cs := v1.ContainerStatus{Name: c.Name, Image: c.Image}
	if k == kindApp {
		cs.AllocatedResourcesStatus = s.deviceHealth(c.Name, old)
	}
	if last == nil {
		s.statusWithout(&cs, c, k, old)
	} else {
		s.statusOf(&cs, c, k, last)
	}
	s.setReady(&cs, c, k, last)
	return cs
}

// deviceHealth is how the devices of a container are. Those of a pod that has finished are others' by now:
// what has been said of them stays.
func (s *step) deviceHealth(name string, old *v1.ContainerStatus) []v1.ResourceStatus {
	if phase := s.pod.Status.Phase; old != nil && (phase == v1.PodFailed || phase == v1.PodSucceeded) {
		return old.AllocatedResourcesStatus
	}
	return s.o.Devices.Health[name]
}

func (s *step) setReady(cs *v1.ContainerStatus, c *v1.Container, k kind, last *Container) {
	if k == kindEphemeral {
		return
	}
	started := cs.State.Running != nil && s.isStarted(c, last)
	cs.Started = &started
	if k == kindInit {
		cs.Ready = cs.State.Terminated != nil && cs.State.Terminated.ExitCode == 0
		return
	}
	cs.Ready = started && s.isReady(c, last)
}

// statusWithout is the status of a container that the runtime does not know.
func (s *step) statusWithout(cs *v1.ContainerStatus, c *v1.Container, k kind, old *v1.ContainerStatus) {
	cs.State.Waiting = s.waiting(c, nil)
	if s.d.Deferred != nil && k != kindEphemeral { // an agent that starts anew reads here what it may have
		r := s.allocated(c)
		cs.Resources, cs.AllocatedResources = r.DeepCopy(), r.Requests.DeepCopy()
	}
	if old == nil {
		return
	}
	// It was there and is not any more, or the API's memory is all there is.
	cs.RestartCount, cs.LastTerminationState = old.RestartCount, old.LastTerminationState
	switch {
	case old.State.Terminated != nil && (s.ending.yes || k == kindInit || k == kindEphemeral):
		cs.State, cs.ContainerID, cs.ImageID, cs.Image = old.State, old.ContainerID, old.ImageID, old.Image
	case old.State.Terminated != nil:
		cs.LastTerminationState = old.State
	case old.State.Running != nil:
		gone := statusUnknown("The container could not be located when the pod was deleted.  The container used to be Running")
		if s.ending.yes {
			cs.State = v1.ContainerState{Terminated: gone}
		} else {
			cs.LastTerminationState = v1.ContainerState{Terminated: gone}
		}
	}
}

func statusUnknown(message string) *v1.ContainerStateTerminated {
	return &v1.ContainerStateTerminated{Reason: reasonStatusUnknown, Message: message, ExitCode: 137}
}

// statusOf is the status of a container that the runtime knows.
func (s *step) statusOf(cs *v1.ContainerStatus, c *v1.Container, k kind, last *Container) {
	cs.RestartCount = int32(last.Attempt)
	cs.ContainerID, cs.ImageID = s.o.Runtime+"://"+last.ID, last.ImageID
	if last.Image != "" {
		cs.Image = last.Image
	}
	cs.LastTerminationState = s.lastState(last, oldStatus(&s.pod.Status, c.Name))
	cs.User, cs.StopSignal = last.User, last.StopSignal // also of those that have ended
	s.setDetails(cs, c, last)
	switch last.State {
	case Running:
		if s.doing(Action{Op: StartContainer, Container: c.Name}) { // its postStart hook has not returned
			cs.State.Waiting = s.waiting(c, last)
			return
		}
		cs.State.Running = &v1.ContainerStateRunning{StartedAt: apiTime(last.StartedAt)}
	case Exited:
		done := s.terminated(last)
		if w := s.restarting(c, k, last); w != nil {
			cs.State.Waiting = w
			cs.LastTerminationState = v1.ContainerState{Terminated: done}
			return
		}
		cs.State.Terminated = done
	case Unknown:
		cs.State.Terminated = &v1.ContainerStateTerminated{
			Reason: reasonStatusUnknown, Message: last.Message, ExitCode: 137, ContainerID: cs.ContainerID,
		}
	default:
		cs.State.Waiting = s.waiting(c, last)
		if old := oldStatus(&s.pod.Status, c.Name); s.ending.yes && old != nil && old.State.Terminated != nil {
			cs.State = old.State // as setLost has said
		}
	}
}

// setDetails says what the container has been given: one that does not run will
// be given what it may have.
func (s *step) setDetails(cs *v1.ContainerStatus, c *v1.Container, last *Container) {
	allocated := s.allocated(c)
	cs.Resources, cs.AllocatedResources = allocated.DeepCopy(), allocated.Requests.DeepCopy()
	if last.State == Running {
		cs.Resources = s.given(last).DeepCopy()
	}
	for _, m := range c.VolumeMounts {
		ms := v1.VolumeMountStatus{Name: m.Name, MountPath: m.MountPath, ReadOnly: m.ReadOnly}
		if m.ReadOnly {
			rro := v1.RecursiveReadOnlyDisabled
			if m.RecursiveReadOnly != nil && *m.RecursiveReadOnly != v1.RecursiveReadOnlyDisabled {
				rro = v1.RecursiveReadOnlyEnabled
			}
			ms.RecursiveReadOnly = &rro
		}
		cs.VolumeMounts = append(cs.VolumeMounts, ms)
	}
}

// lastState is how the container before last ended.
func (s *step) lastState(last *Container, old *v1.ContainerStatus) v1.ContainerState {
	if prev := s.previous(last.Name); prev != nil && prev.State == Exited {
		return v1.ContainerState{Terminated: s.terminated(prev)}
	}
	if old == nil || last.Attempt == 0 {
		return v1.ContainerState{}
	}
	if t := old.State.Terminated; t != nil && t.ContainerID != s.o.Runtime+"://"+last.ID {
		return old.State
	}
	if t := old.LastTerminationState.Terminated; t != nil && t.ContainerID != s.o.Runtime+"://"+last.ID {
		return old.LastTerminationState
	}
	return v1.ContainerState{}
}

// maxMessages is how many bytes the termination messages of a pod's containers
// may have together.
const maxMessages = 12 << 10

func (s *step) terminated(c *Container) *v1.ContainerStateTerminated {
	fair := maxMessages / max(len(s.pod.Spec.Containers)+len(s.pod.Spec.InitContainers), 1)
	return &v1.ContainerStateTerminated{
		ExitCode: c.ExitCode, Reason: c.Reason, Message: c.Message[:min(len(c.Message), fair)],
		StartedAt: apiTime(c.StartedAt), FinishedAt: apiTime(c.FinishedAt),
		ContainerID: s.o.Runtime + "://" + c.ID,
	}
}

// restarting is the waiting state of a container that exited and waits to be
// started again for a reason worth telling; nil: its end is what to show.
func (s *step) restarting(c *v1.Container, k kind, last *Container) *v1.ContainerStateWaiting {
	if s.ending.yes || !s.mustRun(c, k, last, s.current()) {
		return nil
	}
	if w := s.unpulled(c, last.Attempt+1); w != nil {
		return w
	}
	if s.backoffOf(last) > 0 { // also while it is being started again, until it runs, and if the start fails
		return &v1.ContainerStateWaiting{Reason: reasonCrashLoopBackOff, Message: s.backoffMessage(last)}
	}
	if w := s.unstarted(c.Name); w != nil {
		return w
	}
	if s.o.Killed[last.ID] == KilledForChange && restartPolicy(s.pod, c, k) != v1.RestartPolicyAlways {
		// The API takes the end of one that is not restarted for final.
		return &v1.ContainerStateWaiting{Reason: reasonContainerCreating}
	}
	return nil
}

// waiting is the state of a container that has not been started.
func (s *step) waiting(c *v1.Container, last *Container) *v1.ContainerStateWaiting {
	attempt := 0
	if last != nil {
		attempt = last.Attempt
	} else {
		attempt = s.attempt(c.Name)
	}
	if w := s.unpulled(c, attempt); w != nil {
		return w
	}
	if w := s.unstarted(c.Name); w != nil {
		return w
	}
	if len(s.pod.Spec.InitContainers) > 0 {
		return &v1.ContainerStateWaiting{Reason: reasonPodInitializing}
	}
	return &v1.ContainerStateWaiting{Reason: reasonContainerCreating}
}

// unpulled is what keeps the image of start number attempt of a container from being there.
func (s *step) unpulled(c *v1.Container, attempt int) *v1.ContainerStateWaiting {
	if im, ok := s.image(c, attempt); ok && im.Reason != "" {
		return &v1.ContainerStateWaiting{Reason: im.Reason, Message: im.Message}
	}
	return nil
}

// unstarted is how the last start of a container has failed.
func (s *step) unstarted(name string) *v1.ContainerStateWaiting {
	if f, ok := s.o.Failures[Action{Op: StartContainer, Container: name}.Key()]; ok && f.Reason != "" {
		return &v1.ContainerStateWaiting{Reason: f.Reason, Message: f.Message}
	}
	return nil
}
