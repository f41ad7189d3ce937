// Package sequence is the order in which containers of a pod start, and what follows from it: which of them run at a time, and
// so how much of something a pod needs. What it is that they need, others know.
package sequence

import (
	v1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/api/core"
)

// Container is a container in its place among those of its pod.
type Container struct {
	*v1.Container
	Ends bool // before those after it begin: what it has may be handed on
}

// Of are the containers of a pod in the order of their start.
func Of(pod *v1.Pod) []Container {
	var out []Container
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		out = append(out, Container{c, !core.IsSidecar(c)})
	}
	for i := range pod.Spec.Containers {
		out = append(out, Container{&pod.Spec.Containers[i], false})
	}
	return out
}

// Peak is how much of something a pod needs at a time, by what each container needs: one that ends needs it beside those
// before it that go on running.
func Peak(pod *v1.Pod, of func(*v1.Container) int64) int64 {
	var running, most int64
	for _, c := range Of(pod) {
		most = max(most, running+of(c.Container))
		if !c.Ends {
			running += of(c.Container)
		}
	}
	return most
}
