package podstep

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/api/core/podspec"
)

// A container's rules may ask for all containers of the pod to be started anew
// when it exits (KEP-5532). What was created before such an exit belongs to a
// past round: it is killed if it runs, and counts as never started otherwise.
// The containers themselves tell of the exit, so that a new agent knows it too.

// announceWait is how long the next round waits for the API to have shown that
// the last one ends.
const announceWait = 2 * time.Second

// roundStart is when the last container exited that wants all to be started
// anew; zero: none did. An exit that lies ahead, or after the start of what came
// next, was told by a clock that has been set back: nothing can be compared to it.
func (s *step) roundStart() (at time.Time) {
	for i := range s.o.Containers {
		c := &s.o.Containers[i]
		last := s.newest(c.Name)
		setBack := c.FinishedAt.After(s.now) || last.ID != c.ID && last.CreatedAt.Before(c.FinishedAt)
		if s.restartsAll(c) && !setBack && c.FinishedAt.After(at) {
			at = c.FinishedAt
		}
	}
	return at
}

// restartsAll reports whether the exit of c calls for all containers to be
// started anew. One that the pod's end has brought about does not.
func (s *step) restartsAll(c *Container) bool {
	spec, k := s.spec(c.Name)
	return c.State == Exited && spec != nil && k != kindEphemeral && s.o.Killed[c.ID] != KilledForEnd &&
		actionOnExit(spec, c.ExitCode) == v1.ContainerRestartRuleActionRestartAllContainers
}

// stale reports whether c belongs to a past round.
func (s *step) stale(c *Container) bool {
	_, k := s.spec(c.Name)
	return k != kindEphemeral && c.CreatedAt.Before(s.round)
}

// holdsRound reports whether c must be remembered because of what its exit asks
// for: something is still to be started anew.
func (s *step) holdsRound(c *Container) bool {
	return s.restartsAll(c) && c.FinishedAt.Equal(s.round) && s.pastRound(func(c *Container) bool { return s.newest(c.Name) == c })
}

// pastRound reports whether a container of a past round is as asked.
func (s *step) pastRound(is func(*Container) bool) bool {
	for i := range s.o.Containers {
		if c := &s.o.Containers[i]; s.stale(c) && is(c) {
			return true
		}
	}
	return false
}

// endRound kills what is left of the past round: at once and without hooks. It
// returns true while the next one must wait.
func (s *step) endRound() bool {
	for i := range s.o.Containers {
		if c := &s.o.Containers[i]; s.stale(c) && alive(c) && !s.doing(Action{Op: StartContainer, Container: c.Name}) {
			at := int64(0) // the shortest there is
			s.kill(c, &at, KilledForRound, "Container "+c.Name+" will be restarted with all others of the pod")
		}
	}
	if s.pastRound(alive) {
		return true
	}
	if s.announced() {
		return false
	}
	s.wakeAt(s.round.Add(announceWait))
	return true
}

// roundEnds reports whether the past round is being ended.
func (s *step) roundEnds() bool {
	return !s.ending.yes && (s.pastRound(alive) || !s.announced())
}

func alive(c *Container) bool { return c.State == Running || c.State == Unknown }

// announced reports whether the API has shown that the last round ends, or need
// not be waited for.
func (s *step) announced() bool {
	if s.round.IsZero() || !s.now.Before(s.round.Add(announceWait)) {
		return true
	}
	return slices.ContainsFunc(s.pod.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.AllContainersRestarting && (c.Status == v1.ConditionTrue || !c.LastTransitionTime.Time.Before(s.round.Truncate(time.Second)))
	})
}

// setRestartCondition says, for pods that may ask for it, whether all containers
// are being ended to be started anew.
func (s *step) setRestartCondition(st *v1.PodStatus) {
	if !podspec.CanRestartAll(&s.pod.Spec) {
		return
	}
	c := condition(v1.AllContainersRestarting, false)
	switch {
	case st.Phase == v1.PodSucceeded:
		c.Reason = "PodCompleted"
	case st.Phase == v1.PodFailed:
		c.Reason = "PodFailed"
	case s.roundEnds():
		c.Status, c.Reason, c.Message = v1.ConditionTrue, "RestartAllContainersStarted", "container exited with restart policy rule"
	}
	s.setCondition(st, c)
}
