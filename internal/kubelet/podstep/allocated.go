package podstep

import (
	v1 "k8s.io/api/core/v1"
)

// Allocated is the pod with the resources that it and its containers may have now: what
// they had before, while the node cannot give them what the spec asks for. It may be d.Pod,
// which is not changed.
func Allocated(d Desired, o *Observed) *v1.Pod {
	if d.Deferred == nil {
		return d.Pod
	}
	s := &step{d: d, o: o, pod: d.Pod}
	pod := d.Pod.DeepCopy()
	if pod.Spec.Resources != nil {
		pod.Spec.Resources = s.givenPod().DeepCopy()
	}
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			take(&list[i].Resources, s.allocated(&list[i]))
		}
	}
	return pod
}

// allocated is what a container may have: while the pod is to wait for what it asks for, what
// it was granted before.
func (s *step) allocated(c *v1.Container) *v1.ResourceRequirements {
	if s.d.Deferred == nil {
		return &c.Resources
	}
	if last := s.newest(c.Name); last != nil {
		if r, ok := s.o.Resized[last.ID]; ok {
			return &r
		}
		if last.Resources != nil {
			return last.Resources
		}
	}
	if r := s.granted(c.Name); r != nil { // it has not been started yet
		return r
	}
	if old := oldStatus(&s.pod.Status, c.Name); old != nil && old.Resources != nil {
		return old.Resources
	}
	return &c.Resources
}

// granted is what a container could have last; nil: that is not known.
func (s *step) granted(name string) *v1.ResourceRequirements {
	if s.o.Granted == nil {
		return nil
	}
	for _, list := range [][]v1.Container{s.o.Granted.Spec.InitContainers, s.o.Granted.Spec.Containers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i].Resources
			}
		}
	}
	return nil
}

// take has r ask for as much of what may change as from does.
func take(r, from *v1.ResourceRequirements) {
	for _, name := range resized {
		set(&r.Requests, from.Requests, name)
		set(&r.Limits, from.Limits, name)
	}
}

func set(list *v1.ResourceList, from v1.ResourceList, name v1.ResourceName) {
	q, ok := from[name]
	switch {
	case !ok:
		delete(*list, name)
	case *list == nil:
		*list = v1.ResourceList{name: q}
	default:
		(*list)[name] = q
	}
}
