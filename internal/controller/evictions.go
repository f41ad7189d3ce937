package controller

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Evictions count the pods that go because of taints, and how long after their time.
type Evictions struct {
	evicted prometheus.Counter
	delay   prometheus.Histogram
}

// NewEvictions registers both; the buckets are those that upstream has for all of them.
func NewEvictions(reg prometheus.Registerer, evicted prometheus.CounterOpts, delay prometheus.HistogramOpts) *Evictions {
	delay.Buckets = []float64{0.005, 0.025, 0.1, 0.5, 1, 2.5, 10, 30, 60, 120, 180, 240}
	e := &Evictions{prometheus.NewCounter(evicted), prometheus.NewHistogram(delay)}
	reg.MustRegister(e.evicted, e.delay)
	return e
}

// Gone counts a pod that went, and had to from a time on.
func (e *Evictions) Gone(due time.Time) {
	e.evicted.Inc()
	e.delay.Observe(time.Since(due).Seconds())
}
