package probe

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/trace"
)

var (
	start = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	exec  = v1.ProbeHandler{Exec: &v1.ExecAction{}}
	web   = v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{}}
)

// probe runs the probe that is due at the given second and returns the state.
func (w *Worker) probe(t *testing.T, second float64, r Result) Result {
	t.Helper()
	at, ok := w.Due()
	if want := start.Add(time.Duration(second * float64(time.Second))); !ok || !at.Equal(want) {
		t.Fatalf("due: got %s, %v, want after %v s", at.Sub(start), ok, second)
	}
	w.Begin(at)
	if _, ok := w.Due(); ok {
		t.Error("due while it runs")
	}
	w.End(r, at)
	return w.State
}

func TestProbesWaitDelayAndPeriodAndCountToTheirThresholds(t *testing.T) {
	trace.Proves(t, "PLC-025", "PLC-026", "PLC-077")
	w := NewWorker(Liveness, &v1.Probe{ProbeHandler: web, InitialDelaySeconds: 15, PeriodSeconds: 10, FailureThreshold: 3, SuccessThreshold: 1}, start, start)
	if w.State != Success || w.Timeout() != time.Second {
		t.Errorf("new worker: got %+v", w)
	}
	for i, step := range []struct{ r, want Result }{
		{Failure, Success}, {Failure, Success}, {Success, Success}, {Failure, Success}, {Unknown, Success}, {Failure, Success}, {Failure, Failure},
	} {
		if got := w.probe(t, float64(15+10*i), step.r); got != step.want {
			t.Errorf("probe %d: got %v, want %v", i, got, step.want)
		}
	}
	r := NewWorker(Readiness, &v1.Probe{ProbeHandler: exec, PeriodSeconds: 5, FailureThreshold: 2, SuccessThreshold: 2}, start, start)
	for i, step := range []struct{ r, want Result }{
		{Failure, Failure}, {Success, Failure}, {Success, Success}, {Failure, Success}, {Failure, Failure},
	} {
		if got := r.probe(t, float64(5*i), step.r); got != step.want {
			t.Errorf("readiness probe %d: got %v, want %v", i, got, step.want)
		}
	}
}

func TestContainerThatIsNotUpYetIsAskedAgainSoon(t *testing.T) {
	w := NewWorker(Startup, &v1.Probe{ProbeHandler: web, PeriodSeconds: 10, FailureThreshold: 1}, start, start)
	at := 0.0
	for i, wait := range []float64{0.05, 0.1, 0.2, 0.4, 0.8, 1, 1} {
		if got := w.probe(t, at, Failure); got != Unknown {
			t.Fatalf("early try %d: got %v", i, got)
		}
		at += wait
	}
	if got := w.probe(t, at, Success); got != Success {
		t.Errorf("got %v, want success", got)
	}
	if got := w.probe(t, 10, Failure); got != Failure {
		t.Errorf("a later failure: got %v, want it to count", got)
	}
	// With a delay, nothing is asked before it.
	w = NewWorker(Readiness, &v1.Probe{ProbeHandler: web, InitialDelaySeconds: 30, PeriodSeconds: 1, FailureThreshold: 1, SuccessThreshold: 1}, start, start)
	w.probe(t, 30, Failure)
	w.probe(t, 30.05, Success)
	w.probe(t, 31, Failure)
	if w.State != Failure {
		t.Errorf("state: got %v", w.State)
	}
}

func TestLateProbeDoesNotRunTwice(t *testing.T) {
	w := NewWorker(Liveness, &v1.Probe{ProbeHandler: exec, PeriodSeconds: 10}, start, start.Add(time.Hour)) // adopted
	if at, _ := w.Due(); !at.Equal(start.Add(time.Hour)) {
		t.Errorf("due: got %s", at)
	}
	w.Begin(start.Add(2 * time.Hour))
	w.End(Success, start.Add(2*time.Hour))
	if at, _ := w.Due(); !at.Equal(start.Add(2*time.Hour + 10*time.Second)) {
		t.Errorf("due after a late probe: got %s", at)
	}
}
