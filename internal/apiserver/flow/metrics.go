package flow

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are upstream's, of levels and schemas.
type metrics struct {
	c              *Control
	lengths, seats *prometheus.HistogramVec // of queues that somebody has joined; of requests

	mu            sync.Mutex
	bySchemaLevel map[[2]string]*stats
}

// stats are what is counted of a schema's requests at a level.
type stats struct {
	running, waiting atomic.Int64
	waitingSeats     atomic.Int64
	dispatched       atomic.Uint64
	refusals         [4]atomic.Uint64 // in the order of reasons

	lengths, seats        prometheus.Observer
	waited, unserved, ran histogram // who waited for seats and got them, or did not; and how long they ran
}

// bounds are those of the buckets, and the last one has none.
var bounds = [...]time.Duration{
	0, 5 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second,
}

// histogram is one that every request can afford.
type histogram struct {
	buckets [len(bounds) + 1]atomic.Uint64
	sum     atomic.Int64 // nanoseconds
}

func (h *histogram) observe(d time.Duration) {
	i := 0
	for i < len(bounds) && d > bounds[i] {
		i++
	}
	h.buckets[i].Add(1)
	h.sum.Add(int64(d))
}

// collect shows a histogram, with so many observations of nothing besides.
func (h *histogram) collect(ch chan<- prometheus.Metric, d *prometheus.Desc, none uint64, labels ...string) {
	buckets, count := map[float64]uint64{}, none
	for i := range h.buckets {
		count += h.buckets[i].Load()
		if i < len(bounds) {
			buckets[bounds[i].Seconds()] = count
		}
	}
	ch <- prometheus.MustNewConstHistogram(d, count, time.Duration(h.sum.Load()).Seconds(), buckets, labels...)
}

// all is how many observations there are.
func (h *histogram) all() (n uint64) {
	for i := range h.buckets {
		n += h.buckets[i].Load()
	}
	return n
}

var reasons = [4]Refusal{QueueFull, ConcurrencyLimit, TimeOut, Cancelled}

func (s *stats) begun() {
	s.running.Add(1)
	s.dispatched.Add(1)
}

func (s *stats) ended(took time.Duration) {
	s.running.Add(-1)
	s.ran.observe(took)
}

func (s *stats) refused(why Refusal) {
	for i, r := range reasons {
		if r == why {
			s.refusals[i].Add(1)
		}
	}
}

func newMetrics(c *Control, reg prometheus.Registerer) *metrics {
	m := &metrics{
		c: c, bySchemaLevel: map[[2]string]*stats{},
		lengths: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "apiserver_flowcontrol_request_queue_length_after_enqueue", Buckets: []float64{0, 10, 25, 50, 100, 250, 500, 1000},
			Help: "How many requests were in a queue that one has joined, itself included.",
		}, both),
		seats: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "apiserver_flowcontrol_work_estimated_seats", Buckets: []float64{1, 2, 4, 10},
			Help: "How many seats requests take.",
		}, both),
	}
	if reg != nil {
		reg.MustRegister(m, m.lengths, m.seats)
	}
	return m
}

// of are the stats of a schema at a level: the same ones as long as the process runs.
func (m *metrics) of(schema, level string) *stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := [2]string{schema, level}
	s := m.bySchemaLevel[key]
	if s == nil {
		s = &stats{lengths: m.lengths.WithLabelValues(schema, level), seats: m.seats.WithLabelValues(schema, level)}
		m.bySchemaLevel[key] = s
	}
	return s
}

// total is what is counted of a level's requests.
type total struct {
	running, waiting int64
	dispatched       uint64
	refusals         [4]uint64 // in the order of reasons
}

// sum adds up the stats of a level.
func (m *metrics) sum(level string) (t total) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, s := range m.bySchemaLevel {
		if key[1] != level {
			continue
		}
		t.running, t.waiting, t.dispatched = t.running+s.running.Load(), t.waiting+s.waiting.Load(), t.dispatched+s.dispatched.Load()
		for i := range s.refusals {
			t.refusals[i] += s.refusals[i].Load()
		}
	}
	return t
}

var (
	both = []string{"flow_schema", "priority_level"}

	dispatchedTotal = prometheus.NewDesc("apiserver_flowcontrol_dispatched_requests_total", "Requests that got seats.", both, nil)
	rejectedTotal   = prometheus.NewDesc("apiserver_flowcontrol_rejected_requests_total", "Requests that were refused, by reason.", []string{"flow_schema", "priority_level", "reason"}, nil)
	inQueueSeats    = prometheus.NewDesc("apiserver_flowcontrol_current_inqueue_seats", "Seats that are waited for.", both, nil)
	inQueue         = prometheus.NewDesc("apiserver_flowcontrol_current_inqueue_requests", "Requests that wait for seats.", both, nil)
	waitSeconds     = prometheus.NewDesc("apiserver_flowcontrol_request_wait_duration_seconds", "How long requests waited for their seats, in seconds.", []string{"flow_schema", "priority_level", "execute"}, nil)
	runSeconds      = prometheus.NewDesc("apiserver_flowcontrol_request_execution_seconds", "How long requests had their seats, in seconds.", both, nil)
	executing       = prometheus.NewDesc("apiserver_flowcontrol_current_executing_requests", "Requests that have seats.", both, nil)

	levelLabel     = []string{"priority_level"}
	executingSeats = prometheus.NewDesc("apiserver_flowcontrol_current_executing_seats", "Seats in use.", levelLabel, nil)
	nominalSeats   = prometheus.NewDesc("apiserver_flowcontrol_nominal_limit_seats", "Seats that a level's shares come to.", levelLabel, nil)
	lowerSeats     = prometheus.NewDesc("apiserver_flowcontrol_lower_limit_seats", "Seats that a level does not lend.", levelLabel, nil)
	upperSeats     = prometheus.NewDesc("apiserver_flowcontrol_upper_limit_seats", "Seats that a level may have with what it borrows.", levelLabel, nil)
	currentSeats   = prometheus.NewDesc("apiserver_flowcontrol_current_limit_seats", "Seats that a level could have now.", levelLabel, nil)
)

// Describe names what Collect shows.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{dispatchedTotal, rejectedTotal, waitSeconds, runSeconds, inQueue, inQueueSeats, executing, executingSeats, nominalSeats, lowerSeats, upperSeats, currentSeats} {
		ch <- d
	}
}

// Collect shows the present state.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	m.mu.Lock()
	for key, s := range m.bySchemaLevel {
		schema, level := key[0], key[1]
		ch <- prometheus.MustNewConstMetric(dispatchedTotal, prometheus.CounterValue, float64(s.dispatched.Load()), schema, level)
		ch <- prometheus.MustNewConstMetric(inQueue, prometheus.GaugeValue, float64(s.waiting.Load()), schema, level)
		ch <- prometheus.MustNewConstMetric(inQueueSeats, prometheus.GaugeValue, float64(s.waitingSeats.Load()), schema, level)
		ch <- prometheus.MustNewConstMetric(executing, prometheus.GaugeValue, float64(s.running.Load()), schema, level)
		s.ran.collect(ch, runSeconds, 0, schema, level)
		s.waited.collect(ch, waitSeconds, s.dispatched.Load()-min(s.waited.all(), s.dispatched.Load()), schema, level, "true")
		if s.unserved.all() > 0 {
			s.unserved.collect(ch, waitSeconds, 0, schema, level, "false")
		}
		for i, reason := range reasons {
			if n := s.refusals[i].Load(); n > 0 {
				ch <- prometheus.MustNewConstMetric(rejectedTotal, prometheus.CounterValue, float64(n), schema, level, string(reason))
			}
		}
	}
	m.mu.Unlock()
	for name, seats := range m.c.seats() {
		for d, n := range seats {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), name)
		}
	}
}

// seats are those of each level.
func (c *Control) seats() map[string]map[*prometheus.Desc]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string]map[*prometheus.Desc]int{}
	for _, l := range c.mu.levels {
		upper := min(l.most, l.kept+c.mu.pool)
		out[l.name] = map[*prometheus.Desc]int{
			executingSeats: l.used, nominalSeats: l.nominal, lowerSeats: l.kept, upperSeats: upper, currentSeats: l.used + max(0, c.freeLocked(l)),
		}
	}
	return out
}
