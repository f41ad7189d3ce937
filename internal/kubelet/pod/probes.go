package pod

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/kubelet/contain"
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
func newProbes(c *v1.Container, known *v1.ContainerStatus, started, now time.Time) *probes {
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

// worker is that of one kind, nil: there is none.
func (p *probes) worker(kind podstep.ProbeKind) *probe.Worker {
	return map[podstep.ProbeKind]*probe.Worker{
		podstep.StartupProbe: p.startup, podstep.LivenessProbe: p.liveness, podstep.ReadinessProbe: p.readiness,
	}[kind]
}

// results is what the step looks at.
func (p *probes) results() podstep.Probes {
	out := podstep.Probes{Started: p.started(), Ready: p.readiness == nil || p.readiness.State == probe.Success, Due: map[podstep.ProbeKind]time.Time{}}
	for _, kind := range []podstep.ProbeKind{podstep.StartupProbe, podstep.LivenessProbe, podstep.ReadinessProbe} {
		w := p.worker(kind)
		if w == nil {
			continue
		}
		out.Due[kind], _ = w.Due()
		if kind != podstep.ReadinessProbe && w.State == probe.Failure {
			out.Failed, out.Grace = kind, w.Spec.TerminationGracePeriodSeconds
		}
	}
	return out
}

// followProbes has the probes of every container that runs, and of no other.
func (x *Actor) followProbes() {
	for i := range x.o.Containers {
		c := &x.o.Containers[i]
		if c.State != podstep.Running {
			x.endProbes(c.ID)
			continue
		}
		_, starting := x.o.Doing[podstep.Action{Op: podstep.StartContainer, Container: c.Name}.Key()]
		spec := cri.FindContainer(x.d.Pod, c.Name)
		if x.probes[c.ID] != nil || starting || spec == nil || spec.StartupProbe == nil && spec.LivenessProbe == nil && spec.ReadinessProbe == nil {
			continue
		}
		p := newProbes(spec, x.known(c), c.StartedAt, x.now)
		x.probes[c.ID], x.o.Probes[c.ID] = p, p.results()
	}
}

// endProbes forgets the probes of a container that does not run any more.
func (x *Actor) endProbes(id string) {
	delete(x.probes, id)
	delete(x.o.Probes, id)
}

// known is the status that the API has of this very container, or nil.
func (x *Actor) known(c *podstep.Container) *v1.ContainerStatus {
	id := x.s.runtime + "://" + c.ID
	for _, list := range [][]v1.ContainerStatus{x.d.Pod.Status.ContainerStatuses, x.d.Pod.Status.InitContainerStatuses} {
		for i := range list {
			if list[i].ContainerID == id {
				return &list[i]
			}
		}
	}
	return nil
}

// runProbe carries out one probe.
type runProbe struct {
	s       *Set
	pod     string // for logs
	target  probe.Target
	probes  *probes
	worker  *probe.Worker
	outcome outcome
	took    time.Duration
}

func (x *Actor) runProbe(act podstep.Action) work {
	p := x.probes[act.ID]
	w := p.worker(act.Probe)
	w.Begin(x.now)
	x.o.Probes[act.ID] = p.results()
	t := probe.Target{Pod: x.d.Pod, Container: cri.FindContainer(x.d.Pod, act.Container), ContainerID: act.ID, Timeout: w.Timeout()}
	if ips := x.podIPs(); len(ips) > 0 {
		t.PodIP = ips[0]
	}
	return &runProbe{s: x.s, pod: x.name(), target: t, probes: p, worker: w, outcome: outcome{probe.Unknown, "the probe panicked"}}
}

func (w *runProbe) do(ctx context.Context) error {
	began := time.Now()
	contain.Run(w.s.Runner.Log, "probe", w.pod, func() { w.outcome = w.s.probeOnce(ctx, &w.worker.Spec.ProbeHandler, w.target) })
	w.took = time.Since(began)
	return nil
}

// outcome is what a probe has found, and its output for people.
type outcome struct {
	result probe.Result
	output string
}

// probeOnce probes.
func (s *Set) probeOnce(ctx context.Context, h *v1.ProbeHandler, t probe.Target) outcome {
	r, out := s.Runner.Probe(ctx, h, t)
	return outcome{r, out[:min(len(out), maxProbeOutput)]}
}

// maxProbeOutput is how much of a probe's output an event quotes.
const maxProbeOutput = 1024

// note counts the outcome, unless the container has ended meanwhile.
func (w *runProbe) note(x *Actor, _ error) {
	id := w.target.ContainerID
	if x.probes[id] != w.probes || x.ops.Context().Err() != nil {
		return
	}
	r, kind, output, name := w.outcome.result, w.worker.Kind, w.outcome.output, w.target.Container.Name
	if r != probe.Failure || !w.worker.Early(x.now) {
		x.countProbe(probeKey{name, kind}, r, w.took)
	}
	switch {
	case r == probe.Failure && w.worker.Early(x.now):
	case r == probe.Failure:
		x.event(name, v1.EventTypeWarning, "Unhealthy", fmt.Sprintf("%s probe failed: %s", kind, output))
	case r == probe.Warning:
		x.event(name, v1.EventTypeWarning, "ProbeWarning", fmt.Sprintf("%s probe warning: %s", kind, output))
		r = probe.Success
	case r == probe.Unknown:
		x.event(name, v1.EventTypeWarning, "Unhealthy", fmt.Sprintf("%s probe errored and resulted in unknown state: %s", kind, output))
	}
	if w.worker.End(r, x.now) && kind == probe.Startup && r == probe.Success {
		for _, other := range []*probe.Worker{w.probes.liveness, w.probes.readiness} {
			if other != nil {
				other.Hold(x.now)
			}
		}
	}
	x.o.Probes[id] = w.probes.results()
}
