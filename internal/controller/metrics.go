package controller

import (
	"maps"
	"reflect"
	"slices"
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
	running  *prometheus.GaugeVec

	unfinished, longest *prometheus.Desc

	mu struct {
		sync.Mutex
		own     map[reflect.Type]any // each is registered once, however often its controller begins
		working map[string]*working  // by the name of the controller
	}
}

var _ prometheus.Collector = (*Metrics)(nil)

// working is since when the workers of a controller have had the keys that they are at.
type working struct {
	mu struct {
		sync.Mutex
		since []time.Time
	}
}

func (w *working) begin(at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.since = append(w.mu.since, at)
}

func (w *working) end(began time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if i := slices.Index(w.mu.since, began); i >= 0 {
		last := len(w.mu.since) - 1
		w.mu.since[i] = w.mu.since[last]
		w.mu.since = w.mu.since[:last]
	}
}

// soFar is how long workers have been at their keys, in all and at the most.
func (w *working) soFar() (all, most time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, at := range w.mu.since {
		d := time.Since(at)
		all, most = all+d, max(most, d)
	}
	return all, most
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
		running: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "running_managed_controllers", Help: "Whether a controller runs now (1), by its name and upstream's of the program that it is of.",
		}, []string{"name", "manager"}),
		unfinished: prometheus.NewDesc("workqueue_unfinished_work_seconds", "How long reconciles that have not ended have taken until now, all together: large where something hangs.", []string{"name"}, nil),
		longest:    prometheus.NewDesc("workqueue_longest_running_processor_seconds", "How long the longest of them has taken.", []string{"name"}, nil),
	}
	m.mu.own, m.mu.working = map[reflect.Type]any{}, map[string]*working{}
	reg.MustRegister(m, m.running, m.adds, m.depth, m.retries, m.waited, m.duration)
	return m
}

// Describe is part of prometheus.Collector.
func (m *Metrics) Describe(out chan<- *prometheus.Desc) {
	out <- m.unfinished
	out <- m.longest
}

// Collect is part of prometheus.Collector.
func (m *Metrics) Collect(out chan<- prometheus.Metric) {
	m.mu.Lock()
	running := maps.Clone(m.mu.working)
	m.mu.Unlock()
	for name, w := range running {
		all, most := w.soFar()
		out <- prometheus.MustNewConstMetric(m.unfinished, prometheus.GaugeValue, all.Seconds(), name)
		out <- prometheus.MustNewConstMetric(m.longest, prometheus.GaugeValue, most.Seconds(), name)
	}
}

// runs says that a controller of a program runs, until the result is called; m may be nil.
func (m *Metrics) runs(name, manager string) (ended func()) {
	if m == nil || manager == "" {
		return func() {}
	}
	g := m.running.WithLabelValues(name, manager)
	g.Set(1)
	return func() { g.Set(0) }
}

// workingOf is what is known of the workers of a controller.
func (m *Metrics) workingOf(name string) *working {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.mu.working[name]
	if w == nil {
		w = &working{}
		m.mu.working[name] = w
	}
	return w
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
	working       *working
}

// of returns the metrics of one controller; m may be nil.
func (m *Metrics) of(name string) *keyMetrics {
	if m == nil {
		return nil
	}
	return &keyMetrics{
		adds: m.adds.WithLabelValues(name), retries: m.retries.WithLabelValues(name),
		depth: m.depth.WithLabelValues(name), waited: m.waited.WithLabelValues(name), duration: m.duration.WithLabelValues(name),
		working: m.workingOf(name),
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

// begin counts a reconcile.
func (m *keyMetrics) begin(at time.Time) {
	if m != nil {
		m.working.begin(at)
	}
}

// done counts the end of one that began at a time.
func (m *keyMetrics) done(began time.Time, failed bool) {
	if m == nil {
		return
	}
	m.working.end(began)
	m.duration.Observe(time.Since(began).Seconds())
	if failed {
		m.retries.Inc()
	}
}
