package podstep

import "slices"

// probe asks for the probes that are due.
func (s *step) probe() {
	for i := range s.o.Containers {
		c := &s.o.Containers[i]
		p, ok := s.o.Probes[c.ID]
		if !ok || c.State != Running {
			continue
		}
		for _, kind := range p.active(s.ending.yes || s.killed(c.ID)) {
			due, ok := p.Due[kind]
			a := Action{Op: RunProbe, Container: c.Name, ID: c.ID, Probe: kind}
			switch {
			case !ok || s.doing(a):
			case s.now.Before(due):
				s.wakeAt(due)
			default:
				s.do(a)
			}
		}
	}
}

// active are the kinds of probes that are to run now: until the container has
// started, only the startup probe; while it ends, only readiness.
func (p *Probes) active(ending bool) []ProbeKind {
	switch {
	case !p.Started && ending:
		return nil
	case !p.Started:
		return []ProbeKind{StartupProbe}
	case ending:
		return []ProbeKind{ReadinessProbe}
	}
	return []ProbeKind{LivenessProbe, ReadinessProbe}
}

// killed reports whether the container is being killed, from this step on too.
func (s *step) killed(id string) bool {
	return s.o.Killed[id] != "" || slices.ContainsFunc(s.result.Actions, func(a Action) bool { return a.Op == KillContainer && a.ID == id })
}
