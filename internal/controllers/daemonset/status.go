package daemonset

import (
	appsv1 "k8s.io/api/apps/v1"

	"github.com/kemudi/kemudi/internal/api/core"
)

// status is what the set reports. Of several pods on a node the oldest counts.
func (s *spread) status(collisions *int32) appsv1.DaemonSetStatus {
	out := appsv1.DaemonSetStatus{
		ObservedGeneration: s.ds.Generation,
		CollisionCount:     collisions,
		Conditions:         s.ds.Status.Conditions, // nobody of ours sets any
	}
	for i := range s.places {
		p := &s.places[i]
		switch {
		case p.gone:
		case p.runs:
			out.DesiredNumberScheduled++
			if len(p.pods) == 0 {
				continue
			}
			out.CurrentNumberScheduled++
			pod := p.pods[0]
			if core.PodReady(pod) {
				out.NumberReady++
			}
			if s.available(pod) {
				out.NumberAvailable++
			}
			if s.fresh(pod) {
				out.UpdatedNumberScheduled++
			}
		case len(p.pods) > 0:
			out.NumberMisscheduled++
		}
	}
	out.NumberUnavailable = out.DesiredNumberScheduled - out.NumberAvailable
	return out
}
