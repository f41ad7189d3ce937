package probe

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// Kind is what a probe is for.
type Kind string

// The kinds of probes; their values are as in messages.
const (
	Startup   Kind = "Startup"
	Liveness  Kind = "Liveness"
	Readiness Kind = "Readiness"
)

// Result is the outcome of one probe.
type Result int

// The outcomes of a probe. Unknown means that the probe itself could not be
// carried out: nothing follows from it. Warning is a success that people should
// hear of; a [Worker] knows only of the success.
const (
	Unknown Result = iota
	Success
	Failure
	Warning
)

// Worker follows one probe of one running container. The zero value is of no
// use; it belongs to one goroutine.
type Worker struct {
	Kind Kind
	Spec *v1.Probe

	// Passed is what the results so far mean: for liveness and startup, whether
	// the container may live; for readiness, whether it takes traffic; for
	// startup also whether it has started.
	State Result

	next    time.Time
	run     int // results in a row like last
	last    Result
	running bool

	// Until the first period is over, a container that is not up yet is asked
	// again soon rather than after a whole period: most come up within a moment,
	// and then wait for nothing. Those early failures do not count.
	early time.Duration // wait before the next early try; 0: no more
	until time.Time     // end of the early tries
}

// Waits between early tries.
const (
	earlyFirst = 50 * time.Millisecond
	earlyMax   = time.Second
)

// NewWorker returns the worker of a probe of a container that started at the
// given time, as seen now.
func NewWorker(kind Kind, spec *v1.Probe, started, now time.Time) *Worker {
	w := &Worker{Kind: kind, Spec: spec}
	switch kind {
	case Liveness:
		w.State = Success
	case Readiness:
		w.State = Failure
	}
	w.next = started.Add(time.Duration(spec.InitialDelaySeconds) * time.Second)
	if w.next.Before(now) {
		w.next = now
	}
	if kind != Liveness && spec.Exec == nil { // a command is not cheap, and may count its calls
		w.early, w.until = earlyFirst, w.next.Add(w.period())
	}
	return w
}

// Due returns when to probe next; ok is false while a probe runs.
func (w *Worker) Due() (at time.Time, ok bool) { return w.next, !w.running }

// Begin notes that a probe has started at the given time.
func (w *Worker) Begin(now time.Time) {
	w.running = true
	w.next = w.next.Add(w.period())
	if w.early > 0 {
		w.next = w.until
	}
	if !w.next.After(now) { // it was late, by a sleep of the machine or of the container's start
		w.next = now.Add(w.period())
	}
}

// Hold moves the next probe to the given time at the earliest.
func (w *Worker) Hold(until time.Time) {
	if w.next.Before(until) {
		w.next = until
	}
}

func (w *Worker) period() time.Duration {
	return time.Duration(max(w.Spec.PeriodSeconds, 1)) * time.Second
}

// Timeout is how long one probe may take.
func (w *Worker) Timeout() time.Duration {
	return time.Duration(max(w.Spec.TimeoutSeconds, 1)) * time.Second
}

// Early reports whether a failure now means only that the container is not up yet.
func (w *Worker) Early(now time.Time) bool { return w.early > 0 && now.Before(w.until) }

// End takes in a result that came at the given time and reports whether State
// has changed.
func (w *Worker) End(r Result, now time.Time) (changed bool) {
	w.running = false
	if r == Unknown {
		return false
	}
	if r == Failure && w.Early(now) {
		if again := now.Add(w.early); again.Before(w.next) {
			w.next = again
		}
		w.early = min(2*w.early, earlyMax)
		return false
	}
	if w.early > 0 && r == Success {
		w.early = 0
	}
	if r == w.last {
		w.run++
	} else {
		w.last, w.run = r, 1
	}
	threshold := int(max(w.Spec.FailureThreshold, 1))
	if r == Success {
		threshold = int(max(w.Spec.SuccessThreshold, 1))
	}
	if w.run < threshold || w.State == r {
		return false
	}
	w.State = r
	return true
}
