package kubelet

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/kubelet/cri"
	"github.com/kemudi/kemudi/internal/kubelet/podstep"
	"github.com/kemudi/kemudi/internal/kubelet/probe"
)

// probes are the probes of one running container; they belong to its pod's actor.
type probes struct {
	startup, liveness, readiness *probe.Worker // nil: there is none
}

// newProbes begins with what the API shows of the very same container, as the
// agent before this one found it: a restart of the agent changes nothing for pods.
func newProbes(c *v1.Container, started time.Time, known *v1.ContainerStatus) *probes {
	now := time.Now()
	worker := func(k probe.Kind, spec *v1.Probe) *probe.Worker {
		if spec == nil {
			return nil
		}
		return probe.NewWorker(k, spec, started, now)
	}
	p := &probes{
		startup:   worker(probe.Startup, c.StartupProbe),
		liveness:  worker(probe.Liveness, c.LivenessProbe),
		readiness: worker(probe.Readiness, c.ReadinessProbe),
	}
	if known == nil {
		return p
	}
	if p.startup != nil && known.Started != nil && *known.Started {
		p.startup.State = probe.Success
	}
	if p.readiness != nil && known.Ready {
		p.readiness.State = probe.Success
	}
	return p
}

// started reports whether the other probes may begin.
func (p *probes) started() bool { return p.startup == nil || p.startup.State == probe.Success }

// results is what the step looks at.
func (p *probes) results() podstep.Probes {
	out := podstep.Probes{Started: p.started(), Ready: p.readiness == nil || p.readiness.State == probe.Success}
	for name, w := range map[string]*probe.Worker{"startup": p.startup, "liveness": p.liveness} {
		if w != nil && w.State == probe.Failure {
			out.Failed, out.Grace = name, w.Spec.TerminationGracePeriodSeconds
		}
	}
	return out
}

// active are the probes that are to run now: until it has started, only the
// startup probe; while the pod ends, only readiness.
func (p *probes) active(ending bool) []*probe.Worker {
	var out []*probe.Worker
	add := func(w *probe.Worker) {
		if w != nil {
			out = append(out, w)
		}
	}
	if !p.started() {
		if !ending {
			add(p.startup)
		}
		return out
	}
	if !ending {
		add(p.liveness)
	}
	add(p.readiness)
	return out
}

// followProbes has the probes of every container that runs, and of no other.
func (x *actor) followProbes() {
	for i := range x.o.Containers {
		c := &x.o.Containers[i]
		if c.State != podstep.Running {
			delete(x.probes, c.ID)
			continue
		}
		_, starting := x.o.Doing[podstep.Action{Op: podstep.StartContainer, Container: c.Name}.Key()]
		spec := cri.FindContainer(x.d.Pod, c.Name)
		if x.probes[c.ID] != nil || starting || spec == nil || spec.StartupProbe == nil && spec.LivenessProbe == nil && spec.ReadinessProbe == nil {
			continue
		}
		p := newProbes(spec, c.StartedAt, x.known(c))
		x.probes[c.ID], x.o.Probes[c.ID] = p, p.results()
	}
}

// stepProbes starts the probes that are due and returns when the next one is
// (zero: none).
func (x *actor) stepProbes(ending bool) (next time.Time) {
	now := time.Now()
	for i := range x.o.Containers {
		c := &x.o.Containers[i]
		p := x.probes[c.ID]
		if p == nil {
			continue
		}
		_, killed := x.o.Killed[c.ID]
		for _, w := range p.active(ending || killed) {
			at, ok := w.Due()
			if !ok {
				continue
			}
			if !at.After(now) {
				w.Begin(now)
				x.probe(c, p, w)
				continue
			}
			next = earliest(next, at)
		}
	}
	return next
}

// known is the status that the API has of this very container, or nil.
func (x *actor) known(c *podstep.Container) *v1.ContainerStatus {
	id := x.a.facts.runtime + "://" + c.ID
	for _, list := range [][]v1.ContainerStatus{x.d.Pod.Status.ContainerStatuses, x.d.Pod.Status.InitContainerStatuses} {
		for i := range list {
			if list[i].ContainerID == id {
				return &list[i]
			}
		}
	}
	return nil
}

// probe carries out one probe beside the actor.
func (x *actor) probe(c *podstep.Container, p *probes, w *probe.Worker) {
	t := probe.Target{Pod: x.d.Pod, Container: cri.FindContainer(x.d.Pod, c.Name), ContainerID: c.ID, Timeout: w.Timeout()}
	if ips := x.podIPs(); len(ips) > 0 {
		t.PodIP = ips[0]
	}
	id := c.ID
	x.ops.Go("probe", func(ctx context.Context) error {
		o := x.a.probeOnce(ctx, &w.Spec.ProbeHandler, t)
		if ctx.Err() != nil {
			return nil
		}
		x.post(func(x *actor) { x.probed(id, p, w, o) })
		return nil
	})
}

// outcome is what a probe has found, and its output for people.
type outcome struct {
	result probe.Result
	output string
}

// probeOnce probes; on a simulated node, only commands can fail.
func (a *Agent) probeOnce(ctx context.Context, h *v1.ProbeHandler, t probe.Target) outcome {
	if a.o.Simulated && h.Exec == nil {
		return outcome{result: probe.Success}
	}
	r, out := a.prober.Probe(ctx, h, t)
	return outcome{r, out[:min(len(out), maxProbeOutput)]}
}

// maxProbeOutput is how much of a probe's output an event quotes.
const maxProbeOutput = 1024

// probed takes in the outcome of a probe.
func (x *actor) probed(id string, p *probes, w *probe.Worker, o outcome) {
	r, out := o.result, o.output
	if x.probes[id] != p {
		w.End(probe.Unknown, time.Now())
		return // it has ended meanwhile
	}
	name := ""
	for i := range x.o.Containers {
		if x.o.Containers[i].ID == id {
			name = x.o.Containers[i].Name
		}
	}
	now := time.Now()
	switch {
	case r == probe.Failure && w.Early(now):
	case r == probe.Failure:
		x.event(name, v1.EventTypeWarning, "Unhealthy", fmt.Sprintf("%s probe failed: %s", w.Kind, out))
	case r == probe.Warning:
		x.event(name, v1.EventTypeWarning, "ProbeWarning", fmt.Sprintf("%s probe warning: %s", w.Kind, out))
		r = probe.Success
	case r == probe.Unknown:
		x.event(name, v1.EventTypeWarning, "Unhealthy", fmt.Sprintf("%s probe errored and resulted in unknown state: %s", w.Kind, out))
	}
	if w.End(r, now) && w.Kind == probe.Startup && r == probe.Success {
		for _, other := range p.active(false) {
			other.Hold(now)
		}
	}
	x.o.Probes[id] = p.results()
}
