package podstep

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/api/core"
)

// resized lists the resources that can change while a container runs.
var resized = []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory}

// given is what a running container has of them; nil: it is not known, as its
// start was told by another program.
func (s *step) given(c *Container) *v1.ResourceRequirements {
	if r, ok := s.o.Resized[c.ID]; ok {
		return &r
	}
	if c.Resources != nil {
		return c.Resources
	}
	return &v1.ResourceRequirements{}
}

// differs reports whether a resource's request or limit is another.
func differs(a, b *v1.ResourceRequirements, name v1.ResourceName) bool {
	request, limit := a.Requests[name], a.Limits[name]
	return request.Cmp(b.Requests[name]) != 0 || limit.Cmp(b.Limits[name]) != 0
}

// changedResources lists what is to change of a running container's resources.
func (s *step) changedResources(spec *v1.Container, c *Container) []v1.ResourceName {
	return slices.DeleteFunc(slices.Clone(resized), func(name v1.ResourceName) bool {
		return !differs(&spec.Resources, s.given(c), name)
	})
}

// givenPod is what the pod has got as a whole. What another program gave it, its status says.
func (s *step) givenPod() *v1.ResourceRequirements {
	switch {
	case s.o.PodResized != nil:
		return s.o.PodResized
	case s.pod.Status.Resources != nil:
		return s.pod.Status.Resources
	case s.d.Deferred != nil && s.o.Granted != nil:
		return core.PodLevelResources(s.o.Granted)
	}
	return core.PodLevelResources(s.pod)
}

// hasSandbox reports whether there is one that the pod runs in.
func (s *step) hasSandbox() bool { return len(s.o.Sandboxes) > 0 && s.o.Sandboxes[0].Ready }

// podChanged reports whether what the pod has as a whole is to change.
func (s *step) podChanged() bool {
	if !s.hasSandbox() {
		return false
	}
	return slices.ContainsFunc(resized, func(name v1.ResourceName) bool { return differs(core.PodLevelResources(s.pod), s.givenPod(), name) })
}

// waits reports whether the pod is to have less than it asks for, whether it runs or not.
func (s *step) waits() bool {
	if s.d.Deferred == nil {
		return false
	}
	other := func(a, b *v1.ResourceRequirements) bool {
		return slices.ContainsFunc(resized, func(name v1.ResourceName) bool { return differs(a, b, name) })
	}
	if other(core.PodLevelResources(s.pod), s.givenPod()) {
		return true
	}
	for _, list := range [][]v1.Container{s.pod.Spec.InitContainers, s.pod.Spec.Containers} {
		for i := range list {
			if other(&list[i].Resources, s.allocated(&list[i])) {
				return true
			}
		}
	}
	return false
}

// setPodResources says what the pod has got as a whole, if it asks for that.
func (s *step) setPodResources(st *v1.PodStatus) {
	st.Resources, st.AllocatedResources = nil, nil
	if s.pod.Spec.Resources == nil {
		return
	}
	given, allocated := core.PodLevelResources(s.pod), core.PodLevelResources(s.pod)
	if s.hasSandbox() || s.d.Deferred != nil {
		given = s.givenPod()
	}
	if s.d.Deferred != nil {
		allocated = given
	}
	st.Resources, st.AllocatedResources = given.DeepCopy(), allocated.Requests.DeepCopy()
}

// mustRestartFor reports whether a container wants to be started anew when one
// of the resources changes.
func mustRestartFor(spec *v1.Container, names []v1.ResourceName) bool {
	return slices.ContainsFunc(spec.ResizePolicy, func(p v1.ContainerResizePolicy) bool {
		return p.RestartPolicy == v1.RestartContainer && slices.Contains(names, p.ResourceName)
	})
}

// resize gives running containers the resources that the pod asks for now, if
// the node has them.
func (s *step) resize() {
	if s.d.Deferred != nil {
		return
	}
	want := s.podChanged()
	for i := range s.o.Containers {
		c := &s.o.Containers[i]
		spec, k := s.spec(c.Name)
		if c.State != Running || spec == nil || k == kindEphemeral || s.o.Killed[c.ID] != "" || s.doing(Action{Op: StartContainer, Container: c.Name}) {
			continue
		}
		changed := s.changedResources(spec, c)
		switch {
		case len(changed) == 0:
		case mustRestartFor(spec, changed):
			s.kill(c, nil, KilledForChange, "Container "+c.Name+" resize requires restart")
		default:
			want = true
		}
	}
	if want {
		s.do(Action{Op: ResizePod})
	}
}

// setResizeConditions says whether the resources asked for are still to come.
func (s *step) setResizeConditions(st *v1.PodStatus) {
	pending, progress := !s.ending.yes && s.waits(), false
	if !s.ending.yes && s.d.Deferred == nil {
		progress = s.podChanged()
		for i := range s.o.Containers {
			c := &s.o.Containers[i]
			spec, k := s.spec(c.Name)
			progress = progress || c.State == Running && spec != nil && k != kindEphemeral && len(s.changedResources(spec, c)) > 0
		}
	}
	drop := func(t v1.PodConditionType) {
		st.Conditions = slices.DeleteFunc(st.Conditions, func(c v1.PodCondition) bool { return c.Type == t })
	}
	if pending {
		s.setCondition(st, v1.PodCondition{Type: v1.PodResizePending, Status: v1.ConditionTrue, Reason: s.d.Deferred.Reason, Message: s.d.Deferred.Message})
	} else {
		drop(v1.PodResizePending)
	}
	if !progress {
		drop(v1.PodResizeInProgress)
		return
	}
	c := v1.PodCondition{Type: v1.PodResizeInProgress, Status: v1.ConditionTrue}
	if f, ok := s.o.Failures[Action{Op: ResizePod}.Key()]; ok {
		c.Reason, c.Message = v1.PodReasonError, f.Message
	}
	s.setCondition(st, c)
}
