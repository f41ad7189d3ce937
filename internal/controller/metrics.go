package controller

import (
	"reflect"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the queue metrics of all controllers, under upstream's names, and those
// that single controllers have of their own.
type Metrics struct {
	reg      prometheus.Registerer
	adds     *prometheus.CounterVec
	depth    *prometheus.GaugeVec
	retries  *prometheus.CounterVec
	waited   *prometheus.HistogramVec
	duration *prometheus.HistogramVec

	mu struct {
		sync.Mutex
		own map[reflect.Type]any // each is registered once, however often its controller begins
	}
}

// NewMetrics registers the metrics.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		reg: reg,
		adds: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "workqueue_adds_total", Help: "Keys that changes of inputs asked to be reconciled.",
		}, []string{"name"}),
		depth: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "workqueue_depth", Help: "Keys that wait for a worker.",
		}, []string{"name"}),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "workqueue_retries_total", Help: "Reconciles that failed and will be tried again.",
		}, []string{"name"}),
		waited: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "workqueue_queue_duration_seconds", Help: "How long keys waited for a worker.",
			Buckets: prometheus.ExponentialBuckets(1e-5, 10, 8),
		}, []string{"name"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "workqueue_work_duration_seconds", Help: "How long one reconcile took.",
			Buckets: prometheus.ExponentialBuckets(1e-5, 10, 8),
		}, []string{"name"}),
	}
	reg.MustRegister(m.adds, m.depth, m.retries, m.waited, m.duration)
	m.mu.own = map[reflect.Type]any{}
	return m
}

// OwnMetrics are the metrics that a controller has beside those of its queue, of a
// type of its own. They are registered the first time, and the same whenever it begins
// anew. Where nobody reads metrics they count all the same.
func OwnMetrics[T any](k *Kit, register func(prometheus.Registerer) T) T {
	if k.metrics == nil {
		return register(prometheus.NewRegistry())
	}
	k.metrics.mu.Lock()
	defer k.metrics.mu.Unlock()
	kind := reflect.TypeFor[T]()
	m, ok := k.metrics.mu.own[kind]
	if !ok {
		m = register(k.metrics.reg)
		k.metrics.mu.own[kind] = m
	}
	return m.(T)
}

// keyMetrics are the metrics of one controller; nil counts nothing.
type keyMetrics struct {
	adds, retries prometheus.Counter
	depth         prometheus.Gauge
	waited        prometheus.Observer
	duration      prometheus.Observer
}

// of returns the metrics of one controller; m may be nil.
func (m *Metrics) of(name string) *keyMetrics {
	if m == nil {
		return nil
	}
	return &keyMetrics{
		adds: m.adds.WithLabelValues(name), retries: m.retries.WithLabelValues(name),
		depth: m.depth.WithLabelValues(name), waited: m.waited.WithLabelValues(name), duration: m.duration.WithLabelValues(name),
	}
}

func (m *keyMetrics) add() {
	if m != nil {
		m.adds.Inc()
	}
}

// wait counts keys that begin (or with a negative n, end) to wait for a worker.
func (m *keyMetrics) wait(n int) {
	if m != nil {
		m.depth.Add(float64(n))
	}
}

// took counts a key that has got a worker. since is when it began to wait.
func (m *keyMetrics) took(since time.Time) {
	if m != nil {
		m.depth.Dec()
		m.waited.Observe(time.Since(since).Seconds())
	}
}

func (m *keyMetrics) done(d time.Duration, failed bool) {
	if m == nil {
		return
	}
	m.duration.Observe(d.Seconds())
	if failed {
		m.retries.Inc()
	}
}
