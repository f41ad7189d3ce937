package podstep

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// Next returns the status of the pod and what to do for it now (P1).
func Next(d Desired, o Observed, now time.Time) Result {
	s := &step{d: d, o: &o, now: now, pod: d.Pod}
	s.round = s.roundStart()
	s.evict = s.eviction()
	s.ending = s.end()
	if s.ending.yes {
		s.result.Ending = true
		s.stop()
	} else {
		s.run()
	}
	s.place()
	s.probe()
	s.result.Status = s.status()
	s.write()
	return s.result
}

// step is one evaluation of Next.
type step struct {
	d      Desired
	o      *Observed
	now    time.Time
	pod    *v1.Pod
	round  time.Time // when all containers were last to be started anew; zero: never
	evict  *Eviction // nil: the node goes on with the pod
	ending ending
	result Result
}

// do asks for an action unless it is under way, or has failed and must wait.
func (s *step) do(a Action) {
	if !s.held(a) {
		s.ask(a)
	}
}

// ask asks for an action unless it is under way (P2).
func (s *step) ask(a Action) {
	if doing, ok := s.o.Doing[a.Key()]; ok && (a.Op != KillContainer || doing.Grace <= a.Grace) {
		return
	}
	s.result.Actions = append(s.result.Actions, a)
}

func (s *step) doing(a Action) bool {
	_, ok := s.o.Doing[a.Key()]
	return ok
}

// wakeAt asks for another step at t.
func (s *step) wakeAt(t time.Time) {
	if s.result.Wake.IsZero() || t.Before(s.result.Wake) {
		s.result.Wake = t
	}
}

// run brings the pod up and keeps it up.
func (s *step) run() {
	if deadline, ok := s.deadline(); ok {
		s.wakeAt(deadline)
	}
	if s.o.Devices.Unallocated {
		s.do(Action{Op: AllocateDevices})
		return
	}
	s.volumes()
	s.removeOldContainers()
	sandbox := s.sandbox()
	if s.killUnwanted(sandbox) || s.endRound() {
		return
	}
	s.runEphemeral(sandbox)
	if !s.initialized(sandbox) {
		s.runInit(sandbox)
		s.resize()
		return
	}
	s.runSidecars(s.pod.Spec.InitContainers, sandbox)
	s.runApp(sandbox)
	s.resize()
}

// place has running containers run where they are to by now: also those that end, which may take their time.
func (s *step) place() {
	if s.o.Devices.Misplaced && slices.ContainsFunc(s.o.Containers, func(c Container) bool { return c.State == Running }) {
		s.do(Action{Op: PlaceContainers})
	}
}

// write asks for the status to be written and, at the very end, for the
// object's deletion (P5).
func (s *step) write() {
	if s.d.Gone {
		s.result.Done = s.stopped() && s.o.CleanedUp && len(s.o.Sandboxes) == 0
		return
	}
	if s.tidying() {
		return
	}
	same := equality.Semantic.DeepEqual(s.result.Status, s.pod.Status)
	if s.o.Mirror != nil {
		s.writeStatic(same)
		return
	}
	if !same {
		s.do(Action{Op: WriteStatus})
		return
	}
	if s.pod.DeletionTimestamp != nil && s.stopped() && s.o.CleanedUp && !s.doing(Action{Op: WriteStatus}) {
		s.do(Action{Op: DeletePod})
	}
}

// retry is when to try an action again that has failed; zero: it has not.
func (s *step) retry(a Action) time.Time {
	f, ok := s.o.Failures[a.Key()]
	if !ok {
		return time.Time{}
	}
	return f.At.Add(a.Op.RetryAfter(f.Count))
}

// held reports whether an action that has failed must still wait.
func (s *step) held(a Action) bool {
	retry := s.retry(a)
	if !s.now.Before(retry) {
		return false
	}
	s.wakeAt(retry)
	return true
}

// sandbox returns the sandbox to run in, or nil while there is none; it asks
// for one if needed.
func (s *step) sandbox() *Sandbox {
	attempt := 0
	var current *Sandbox
	for i := range s.o.Sandboxes {
		sb := &s.o.Sandboxes[i]
		attempt = max(attempt, sb.Attempt+1)
		if i == 0 && s.usable(sb) {
			current = sb
		}
	}
	clear := true
	for i := range s.o.Sandboxes {
		if sb := &s.o.Sandboxes[i]; sb != current && !s.retire(sb, i > 0) {
			clear = false
		}
	}
	if current == nil && clear && s.wantsSandbox() && s.prepared() {
		s.do(Action{Op: CreateSandbox, Attempt: attempt})
	}
	return current
}

// prepared reports whether the devices of the pod's claims are ready, or has them made so.
func (s *step) prepared() bool {
	if s.o.Devices.Unprepared {
		s.do(Action{Op: PrepareClaims})
	}
	return !s.o.Devices.Unprepared
}

// retire gives up a sandbox, step by step: killUnwanted kills what runs in it, then the
// sandbox is stopped, which frees its addresses, and then, with remove, it is removed. One
// with a container whose logs are still of use is not removed. It returns true when the
// addresses are free.
func (s *step) retire(sb *Sandbox, remove bool) bool {
	switch used, running := s.uses(sb.ID); {
	case running:
		return false
	case !sb.Stopped:
		s.do(Action{Op: StopSandbox, ID: sb.ID})
		return false
	case remove && !used:
		s.do(Action{Op: RemoveSandbox, ID: sb.ID})
	}
	return true
}

func (s *step) usable(sb *Sandbox) bool {
	return sb.Ready && (s.pod.Spec.HostNetwork || len(sb.IPs) > 0)
}

// wantsSandbox reports whether a container is left to be run: a pod that has
// only finished containers does not get a sandbox again.
func (s *step) wantsSandbox() bool {
	for i := range s.pod.Spec.Containers {
		c := &s.pod.Spec.Containers[i]
		last := s.newest(c.Name)
		if last == nil || s.mustRun(c, kindApp, last, nil) {
			return true
		}
	}
	return false
}

// uses reports whether there are containers in the sandbox, and running ones.
func (s *step) uses(sandboxID string) (any, running bool) {
	for i := range s.o.Containers {
		if c := &s.o.Containers[i]; c.SandboxID == sandboxID {
			any = true
			running = running || c.State == Running || c.State == Unknown
		}
	}
	return any, running
}

// newest returns the newest container with the name, or nil.
func (s *step) newest(name string) *Container {
	for i := range s.o.Containers {
		if s.o.Containers[i].Name == name {
			return &s.o.Containers[i]
		}
	}
	return nil
}

// previous returns the second newest container with the name, or nil.
func (s *step) previous(name string) *Container {
	seen := false
	for i := range s.o.Containers {
		if s.o.Containers[i].Name != name {
			continue
		}
		if seen {
			return &s.o.Containers[i]
		}
		seen = true
	}
	return nil
}

// removeOldContainers keeps of each container the newest and, while that one
// runs, the last that exited (its log is what kubectl logs --previous shows).
func (s *step) removeOldContainers() {
	type seen struct{ any, exited bool }
	byName := map[string]seen{}
	for i := range s.o.Containers {
		c := &s.o.Containers[i]
		have := byName[c.Name]
		if have.any && have.exited && c.State != Running && !s.holdsRound(c) {
			s.do(Action{Op: RemoveContainer, Container: c.Name, ID: c.ID})
		}
		byName[c.Name] = seen{any: true, exited: have.exited || c.State == Exited}
	}
}
