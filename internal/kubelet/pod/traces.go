package pod

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/kubelet/podstep"
	"github.com/kemudi/kemudi/internal/obs/tracing"
)

// turn is the time in which something is under way for a pod, as traces show it. It is upstream's round of a pod: what
// such a round waits for goes on here until there is nothing more to do. The zero value is no turn.
type turn struct {
	name string
	ctx  context.Context // of what is done in it; nil: there is no turn
	span *tracing.Span
	rev  int64 // of the pod, when the last turn began
}

// Upstream's names of rounds, by what a pod is about to do.
const (
	turnSync       = "syncPod"
	turnEnding     = "syncTerminatingPod" // its containers end, and its network goes
	turnTerminated = "syncTerminatedPod"  // what it has is taken away
)

// worksFor reports whether an action belongs to a turn. What is done again and again as long as the pod runs does not.
func worksFor(op podstep.Op) bool {
	return op != podstep.RunProbe && op != podstep.MeasureStorage && !op.Tells()
}

// beginTurn begins a turn, if there is something to do that belongs to one. One that is under way goes on, unless the pod is about to
// do something else.
func (x *Actor) beginTurn(r podstep.Result) {
	if x.s.Tracing == nil {
		return
	}
	name := ""
	for _, act := range r.Actions {
		if worksFor(act.Op) {
			name = x.turnOf(r)
			break
		}
	}
	if name == "" || x.turn.ctx != nil && x.turn.name == name {
		return
	}
	x.endTurn()
	pod := x.d.Pod
	about := []tracing.Attribute{
		tracing.Text("k8s.pod.uid", string(pod.UID)), tracing.Text("k8s.pod", x.name()), tracing.Text("k8s.pod.name", pod.Name), tracing.Text("k8s.namespace.name", pod.Namespace),
	}
	if name == turnSync {
		kind := "sync"
		switch {
		case x.turn.name == "":
			kind = "create"
		case x.turn.rev != x.rev:
			kind = "update"
		}
		about = append(about, tracing.Text("k8s.pod.update_type", kind))
	}
	ctx, span := x.s.Tracing.Start(x.ops.Context(), name, about...)
	x.turn = turn{name: name, ctx: ctx, span: span, rev: x.rev}
}

// turnOf is what a turn with the actions of a step is called.
func (x *Actor) turnOf(r podstep.Result) string {
	if !r.Ending && x.status.Phase != v1.PodSucceeded && x.status.Phase != v1.PodFailed {
		return turnSync
	}
	for _, act := range r.Actions {
		if ends(act.Op) {
			return turnEnding
		}
	}
	for _, h := range x.handles {
		if ends(h.act.Op) {
			return turnEnding
		}
	}
	return turnTerminated
}

// ends reports whether an action is part of a pod's end, as upstream has it.
func ends(op podstep.Op) bool {
	switch op {
	case podstep.DrainPod, podstep.PreStop, podstep.KillContainer, podstep.StopSandbox:
		return true
	}
	return false
}

// within is the context of an action: that of the turn, if it belongs to it.
func (x *Actor) within(op podstep.Op) context.Context {
	if x.turn.ctx != nil && worksFor(op) {
		return x.turn.ctx
	}
	return x.ops.Context()
}

// rest ends the turn when nothing is under way any more.
func (x *Actor) rest() {
	if x.turn.ctx == nil {
		return
	}
	for _, h := range x.handles {
		if worksFor(h.act.Op) {
			return
		}
	}
	x.endTurn()
}

// endTurn ends the turn, if there is one.
func (x *Actor) endTurn() {
	x.turn.span.End()
	x.turn.ctx, x.turn.span = nil, nil
}
