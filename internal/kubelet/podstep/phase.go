package podstep

import (
	v1 "k8s.io/api/core/v1"
)

// setPhase sets phase, reason and message.
func (s *step) setPhase(st *v1.PodStatus) {
	old := s.pod.Status.Phase
	if old == v1.PodFailed || old == v1.PodSucceeded {
		return // for ever
	}
	over := s.over()
	phase := s.phase(st, over)
	if s.ending.failed {
		phase = v1.PodFailed
	}
	if (phase == v1.PodFailed || phase == v1.PodSucceeded) && !over { // P3
		phase = old
		if phase == "" {
			phase = v1.PodPending
		}
		st.Phase = phase
		return
	}
	st.Phase = phase
	st.Reason, st.Message = s.ending.reason, s.ending.message
}

// over reports whether the pod has ended, and the devices of its claims are not its own
// any more: who gives them to others looks at its phase. Volumes do not hold it up.
func (s *step) over() bool {
	return s.ending.yes && s.stopped() && (s.o.CleanedUp || len(s.pod.Spec.ResourceClaims) == 0)
}

// tidying reports whether the devices of the pod's claims are being given back, at the
// first try: its last status comes right after.
func (s *step) tidying() bool {
	if !s.ending.yes || s.o.CleanedUp || len(s.pod.Spec.ResourceClaims) == 0 {
		return false
	}
	_, failed := s.o.Failures[Action{Op: CleanUp}.Key()]
	return !failed && (s.doing(Action{Op: CleanUp}) || s.stopped())
}

// tally counts containers by what their states mean for the phase.
type tally struct{ running, waiting, stopped, succeeded, unknown int }

func (t *tally) add(cs *v1.ContainerStatus) {
	switch {
	case cs.State.Running != nil:
		t.running++
	case cs.State.Terminated != nil:
		t.stopped++
		if cs.State.Terminated.ExitCode == 0 {
			t.succeeded++
		}
	case cs.State.Waiting != nil && cs.LastTerminationState.Terminated != nil:
		t.stopped++
	case cs.State.Waiting != nil:
		t.waiting++
	default:
		t.unknown++
	}
}

// phase is the phase that the container statuses call for. over says that the
// pod has ended.
func (s *step) phase(st *v1.PodStatus, over bool) v1.PodPhase {
	initializing, initFailed := s.initState(st)
	var app tally
	for i := range st.ContainerStatuses {
		app.add(&st.ContainerStatuses[i])
	}
	never := s.pod.Spec.RestartPolicy == v1.RestartPolicyNever
	switch {
	case initFailed && (never || over):
		return v1.PodFailed
	case initializing && !over && !s.roundEnds():
		return v1.PodPending
	case app.waiting > 0 && over:
		return v1.PodFailed
	case app.waiting > 0:
		return v1.PodPending
	case app.running > 0 && app.unknown == 0:
		return v1.PodRunning
	case app.stopped > 0 && app.unknown == 0:
		if over || s.completed() {
			if app.stopped == app.succeeded {
				return v1.PodSucceeded
			}
			return v1.PodFailed
		}
		return v1.PodRunning // all are being restarted
	}
	return v1.PodPending
}

// initState reports whether init containers are left to do their part, and
// whether one has failed.
func (s *step) initState(st *v1.PodStatus) (initializing, failed bool) {
	ready := s.initialized(s.newestSandbox())
	for i := range s.pod.Spec.InitContainers {
		cs := &st.InitContainerStatuses[i]
		t := cs.State.Terminated
		if t == nil && cs.State.Waiting != nil {
			t = cs.LastTerminationState.Terminated
		}
		if kindOfInit(&s.pod.Spec.InitContainers[i]) == kindInit && t != nil && t.ExitCode != 0 && !ready {
			failed = true
		}
	}
	return !ready, failed
}

// newestSandbox is the sandbox that matters for the status, alive or not.
func (s *step) newestSandbox() *Sandbox {
	if len(s.o.Sandboxes) == 0 {
		return nil
	}
	return &s.o.Sandboxes[0]
}
