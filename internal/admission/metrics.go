package admission

import (
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// The halves of admission, and the operations, as metrics have them.
var (
	halves     = [...]string{"admit", "validate"}
	operations = [...]string{Create, Update, Delete, Connect}
)

const (
	admits = iota
	validates
)

// metrics are upstream's, of the plugins and of all of them together.
type metrics struct {
	plugins []observers // in the order of the chain
	steps   observers
}

// observers are those of a plugin, or of the halves. Each is asked for once: by its labels that takes longer
// than most plugins do.
type observers struct {
	with  func(labels ...string) prometheus.Observer
	known [len(halves)][len(operations)][2]atomic.Pointer[prometheus.Observer]
}

// newMetrics counts in reg.
func newMetrics(reg *prometheus.Registry, plugins []Plugin) *metrics {
	buckets := []float64{0.005, 0.025, 0.1, 0.5, 1.0, 2.5}
	each := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "apiserver_admission_controller_admission_duration_seconds", Buckets: buckets,
		Help: "How long an admission plugin took, in seconds, by the half of admission, the operation, and whether it has refused.",
	}, []string{"name", "type", "operation", "rejected"})
	all := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "apiserver_admission_step_admission_duration_seconds", Buckets: buckets,
		Help: "How long a half of admission took, in seconds, by the operation and whether it has refused.",
	}, []string{"type", "operation", "rejected"})
	reg.MustRegister(each, all)
	m := &metrics{plugins: make([]observers, len(plugins)), steps: observers{with: all.WithLabelValues}}
	for i := range plugins {
		m.plugins[i].with = each.MustCurryWith(prometheus.Labels{"name": plugins[i].Name}).WithLabelValues
	}
	return m
}

func (o *observers) observe(half, operation int, err error, took time.Duration) {
	if operation < 0 {
		return
	}
	rejected := 0
	if err != nil {
		rejected = 1
	}
	at := &o.known[half][operation][rejected]
	known := at.Load()
	if known == nil {
		made := o.with(halves[half], operations[operation], strconv.FormatBool(err != nil))
		known = &made
		at.Store(known)
	}
	(*known).Observe(took.Seconds())
}

// clock measures one half of admission of a write. The zero value measures nothing.
type clock struct {
	m               *metrics
	half, operation int
	began           time.Time
	last            time.Duration // since then, which is read at half the cost of a time
}

// clock starts one; m may be nil.
func (m *metrics) clock(half int, a *Attributes) (c clock) {
	if m != nil {
		c = clock{m: m, half: half, operation: slices.Index(operations[:], a.Operation), began: time.Now()}
	}
	return c
}

// lap observes the plugin that has been asked last.
func (c *clock) lap(plugin int, err error) {
	if c.m == nil {
		return
	}
	now := time.Since(c.began)
	c.m.plugins[plugin].observe(c.half, c.operation, err, now-c.last)
	c.last = now
}

// stop observes the half.
func (c *clock) stop(err error) {
	if c.m != nil {
		c.m.steps.observe(c.half, c.operation, err, time.Since(c.began))
	}
}
