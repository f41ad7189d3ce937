package pod

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/kubelet/cri"
	"github.com/kemudi/kemudi/internal/kubelet/podstep"
	"github.com/kemudi/kemudi/internal/kubelet/runtime"
)

// resize lets the pod have what its spec asks for now, or says why not: then it
// keeps what it has, and is asked about again when others have gone. trigger is what
// it is asked for, before the pod as it was until then.
func (x *Actor) resize(trigger string, before *v1.Pod) {
	waited := x.d.Deferred != nil && x.d.Deferred.Reason == v1.PodReasonDeferred
	granted := before
	if x.d.Deferred != nil {
		granted = x.o.Granted
	}
	x.d.Deferred, x.o.Granted = nil, nil
	reason := v1.PodReasonInfeasible
	detail, message := x.frozen()
	if message != "" {
		x.s.Runner.Ledger.Forgo(x.uid)
	} else {
		detail = "insufficient_node_allocatable"
		reason, message = x.s.Runner.Ledger.Resize(x.d.Pod, x.s.Runner.Facts.Allocatable, func(trigger string) { x.post(func(x *Actor) { x.resize(trigger, nil) }) })
	}
	switch {
	case reason == "" && waited:
		x.s.metrics.resizes.accepted.WithLabelValues(trigger).Inc()
		return
	case reason == "":
		return
	case reason == v1.PodReasonInfeasible:
		x.s.metrics.resizes.infeasible.WithLabelValues(detail).Inc()
	}
	x.d.Deferred, x.o.Granted = &podstep.Failure{Reason: reason, Message: message}, granted
	x.reportResize("Resize"+reason, v1.EventTypeWarning, resizeText("Pod resize "+reason, x.d.Pod, message))
}

// reportResize tells each thing once for each change of the pod.
func (x *Actor) reportResize(reason, kind, message string) {
	key := "resize " + reason + message
	if x.reported[key] {
		return
	}
	maps.DeleteFunc(x.reported, func(old string, _ bool) bool { return strings.HasPrefix(old, "resize "+reason) })
	x.reported[key] = true
	x.event("", kind, reason, message)
}

// resizeText is what an event says of a resize: title, the resources asked for,
// and what is wrong, if something is.
func resizeText(title string, pod *v1.Pod, problem string) string {
	type asked struct {
		Name      string                  `json:"name"`
		Resources v1.ResourceRequirements `json:"resources"`
	}
	out := struct {
		Resources      *v1.ResourceRequirements `json:"resources,omitempty"`
		InitContainers []asked                  `json:"initContainers,omitempty"`
		Containers     []asked                  `json:"containers"`
		Generation     int64                    `json:"generation"`
		Error          string                   `json:"error,omitempty"`
	}{Resources: pod.Spec.Resources, Generation: pod.Generation, Error: problem}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; core.IsSidecar(c) || len(c.Resources.Requests)+len(c.Resources.Limits) > 0 {
			out.InitContainers = append(out.InitContainers, asked{c.Name, c.Resources})
		}
	}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		out.Containers = append(out.Containers, asked{c.Name, c.Resources})
	}
	data, err := json.Marshal(out)
	if err != nil {
		panic(fmt.Sprintf("encode resources of pod %s: %v", pod.UID, err))
	}
	return title + ": " + string(data)
}

// resizePod gives the pod's running containers what its spec asks for.
type resizePod struct {
	s    *Set
	pod  *v1.Pod
	list []podstep.Container
	done map[string]v1.ResourceRequirements // by container ID

	began time.Time
}

func (x *Actor) resizePod() work {
	w := &resizePod{s: x.s, pod: x.d.Pod, began: time.Now()}
	for _, c := range x.o.Containers {
		if c.State == podstep.Running && cri.FindContainer(w.pod, c.Name) != nil {
			w.list = append(w.list, c)
		}
	}
	x.reportResize("ResizeStarted", v1.EventTypeNormal, resizeText("Pod resize started", w.pod, ""))
	return w
}

func (w *resizePod) do(ctx context.Context) (err error) {
	w.done, err = w.s.Runner.Resize(ctx, w.pod, w.list)
	return err
}

func (w *resizePod) note(x *Actor, err error) {
	for id, r := range w.done {
		x.o.Resized[id] = r
	}
	x.s.metrics.resizes.tried(w.began, err)
	if err != nil {
		x.reportResize("ResizeError", v1.EventTypeWarning, resizeText("Pod resize error", w.pod, runtime.Message(err)))
		return
	}
	x.o.PodResized = core.PodLevelResources(w.pod)
	x.volumesStale() // they may tell of it
	x.event("", v1.EventTypeNormal, "ResizeCompleted", resizeText("Pod resize completed", w.pod, ""))
}
