package scheduler

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// roomWatch are upstream's metrics of how room is made for pods and groups: who has to go, and how long
// it takes until all have been told to.
type roomWatch struct {
	evaluated *prometheus.HistogramVec
	executed  *prometheus.HistogramVec
	rounds    *prometheus.CounterVec
	roundTook *prometheus.HistogramVec
	violated  *prometheus.CounterVec
}

func newRoomWatch(reg prometheus.Registerer) *roomWatch {
	seconds := prometheus.ExponentialBuckets(0.001, 2, 16)
	w := &roomWatch{
		evaluated: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "scheduler_preemption_evaluation_duration_seconds", Help: "How long it took to find out which pods would have to go, for whom (pod, podgroup), by what came of it.", Buckets: seconds,
		}, []string{"preemptor", "result"}),
		executed: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "scheduler_preemption_execution_duration_seconds", Help: "How long it took to evict all victims of a preemption, beside the scheduling of other pods.", Buckets: seconds,
		}, []string{"preemptor", "result"}),
		rounds: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "scheduler_preemption_goroutines_execution_total", Help: "Preemptions whose victims have been evicted (success), or not all of them (error).",
		}, []string{"result"}),
		roundTook: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "scheduler_preemption_goroutines_duration_seconds", Help: "What scheduler_preemption_execution_duration_seconds says, under the name that it had before.",
			Buckets: prometheus.ExponentialBuckets(0.01, 2, 20),
		}, []string{"result"}),
		violated: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "scheduler_preemption_pdb_violations_total", Help: "Victims of preemptions whose disruption budgets did not allow it.",
		}, []string{"preemptor"}),
	}
	if reg != nil {
		reg.MustRegister(w.evaluated, w.executed, w.rounds, w.roundTook, w.violated)
	}
	return w
}

// looked notes a search for victims, which began then.
func (w *roomWatch) looked(preemptor string, found bool, began time.Time) {
	result := wasRefused
	if found {
		result = wentWell
	}
	w.evaluated.WithLabelValues(preemptor, result.String()).Observe(time.Since(began).Seconds())
}

// chose notes how many victims violate a budget.
func (w *roomWatch) chose(preemptor string, violations int) {
	if violations > 0 {
		w.violated.WithLabelValues(preemptor).Add(float64(violations))
	}
}

// round is the eviction of the victims of one preemption.
type round struct {
	watch     *roomWatch
	preemptor string
	began     time.Time
	left      int // of them
	failed    bool
}

// evicted notes that one of them has been told to go, or could not be.
func (r *round) evicted(err error) {
	r.failed = r.failed || err != nil && !apierrors.IsNotFound(err)
	if r.left--; r.left > 0 {
		return
	}
	result, took := "success", time.Since(r.began).Seconds()
	if r.failed {
		result = "error"
	}
	r.watch.executed.WithLabelValues(r.preemptor, result).Observe(took)
	r.watch.rounds.WithLabelValues(result).Inc()
	r.watch.roundTook.WithLabelValues(result).Observe(took)
}
