package podstep

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// setConditions sets the conditions that the node owns and leaves those of others.
func (s *step) setConditions(st *v1.PodStatus) {
	ready := s.containersReady(st)
	s.setCondition(st, s.readyToStart())
	s.setCondition(st, s.initializedCondition(st))
	s.setCondition(st, s.readyCondition(st, ready))
	s.setCondition(st, ready)
	s.setCondition(st, v1.PodCondition{Type: v1.PodScheduled, Status: v1.ConditionTrue})
	if s.evict != nil {
		s.setCondition(st, v1.PodCondition{
			Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: v1.PodReasonTerminationByKubelet, Message: cmp.Or(s.evict.Condition, s.evict.Message),
		})
	}
	s.setResizeConditions(st)
	s.setRestartCondition(st)
}

// setCondition puts c in the place of the condition of its type. The time of
// the last transition stays unless the status changes.
func (s *step) setCondition(st *v1.PodStatus, c v1.PodCondition) {
	c.ObservedGeneration = s.pod.Generation
	c.LastTransitionTime = apiTime(s.now)
	i := slices.IndexFunc(st.Conditions, func(o v1.PodCondition) bool { return o.Type == c.Type })
	if i < 0 {
		st.Conditions = append(st.Conditions, c)
		return
	}
	if st.Conditions[i].Status == c.Status {
		c.LastTransitionTime = st.Conditions[i].LastTransitionTime
	}
	c.LastProbeTime = st.Conditions[i].LastProbeTime
	st.Conditions[i] = c
}

func condition(t v1.PodConditionType, ok bool) v1.PodCondition {
	if ok {
		return v1.PodCondition{Type: t, Status: v1.ConditionTrue}
	}
	return v1.PodCondition{Type: t, Status: v1.ConditionFalse}
}

func (s *step) readyToStart() v1.PodCondition {
	return condition(v1.PodReadyToStartContainers, s.current() != nil)
}

func (s *step) initializedCondition(st *v1.PodStatus) v1.PodCondition {
	c := condition(v1.PodInitialized, true)
	if st.Phase == v1.PodSucceeded {
		c.Reason = "PodCompleted"
		return c
	}
	var incomplete []string
	if !s.initialized(s.newestSandbox()) {
		for i := range st.InitContainerStatuses {
			cs := &st.InitContainerStatuses[i]
			done := cs.Ready
			if kindOfInit(&s.pod.Spec.InitContainers[i]) == kindSidecar {
				done = cs.Started != nil && *cs.Started
			}
			if !done {
				incomplete = append(incomplete, cs.Name)
			}
		}
	}
	if len(incomplete) == 0 {
		return c
	}
	c.Status, c.Reason = v1.ConditionFalse, "ContainersNotInitialized"
	c.Message = fmt.Sprintf("containers with incomplete status: %s", incomplete)
	return c
}

func (s *step) containersReady(st *v1.PodStatus) v1.PodCondition {
	c := condition(v1.ContainersReady, false)
	switch st.Phase {
	case v1.PodSucceeded:
		c.Reason = "PodCompleted"
		return c
	case v1.PodFailed:
		c.Reason = "PodFailed"
		return c
	}
	var unready []string
	for i := range st.InitContainerStatuses {
		if cs := &st.InitContainerStatuses[i]; !cs.Ready && kindOfInit(&s.pod.Spec.InitContainers[i]) == kindSidecar {
			unready = append(unready, cs.Name)
		}
	}
	for i := range st.ContainerStatuses {
		if cs := &st.ContainerStatuses[i]; !cs.Ready {
			unready = append(unready, cs.Name)
		}
	}
	if len(unready) == 0 {
		c.Status = v1.ConditionTrue
		return c
	}
	c.Reason = "ContainersNotReady"
	c.Message = fmt.Sprintf("containers with unready status: %s", unready)
	return c
}

func (s *step) readyCondition(st *v1.PodStatus, containers v1.PodCondition) v1.PodCondition {
	c := containers
	c.Type = v1.PodReady
	if containers.Status != v1.ConditionTrue {
		return c
	}
	var closed []string
	for _, g := range s.pod.Spec.ReadinessGates {
		i := slices.IndexFunc(st.Conditions, func(o v1.PodCondition) bool { return o.Type == g.ConditionType })
		switch {
		case i < 0:
			closed = append(closed, fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist.", g.ConditionType))
		case st.Conditions[i].Status != v1.ConditionTrue:
			closed = append(closed, fmt.Sprintf("the status of pod readiness gate %q is not \"True\", but %v", g.ConditionType, st.Conditions[i].Status))
		}
	}
	if len(closed) > 0 {
		c.Status, c.Reason, c.Message = v1.ConditionFalse, "ReadinessGatesNotReady", strings.Join(closed, ", ")
	}
	return c
}
