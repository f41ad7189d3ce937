package scheduler

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kemudi/kemudi/internal/scheduler/plugins"
)

// timings are upstream's metrics of how long the parts of an attempt take, and what happens around it.
type timings struct {
	points  *prometheus.HistogramVec
	runs    *prometheus.HistogramVec // of single plugins
	asked   *prometheus.CounterVec   // so are they
	events  *prometheus.HistogramVec
	permits *prometheus.HistogramVec

	called    *prometheus.CounterVec
	callsTook *prometheus.HistogramVec
	callsWait *prometheus.GaugeVec

	byEvent map[plugins.Events]prometheus.Observer
	room    *roomWatch
}

func newTimings(reg prometheus.Registerer) *timings {
	seconds := prometheus.ExponentialBuckets(0.001, 2, 15)
	t := &timings{
		points: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "scheduler_framework_extension_point_duration_seconds",
			Help: "How long all plugins of an extension point took together, for all nodes of an attempt, by what came of it.", Buckets: prometheus.ExponentialBuckets(0.0001, 2, 12),
		}, []string{"extension_point", "status", "profile"}),
		runs: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "scheduler_plugin_execution_duration_seconds",
			Help: "How long a plugin took at an extension point, by what it said: Filter for one node, Score for all. One attempt in ten is measured.", Buckets: prometheus.ExponentialBuckets(0.00001, 1.5, 20),
		}, []string{"plugin", "extension_point", "status"}),
		asked: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "scheduler_plugin_evaluation_total", Help: "Attempts to schedule pods in which a plugin had a say at an extension point (PreFilter, Filter, Score).",
		}, []string{"plugin", "extension_point", "profile"}),
		events: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "scheduler_event_handling_duration_seconds",
			Help: "How long it took to find out which pods an event can help.", Buckets: prometheus.ExponentialBuckets(0.0001, 2, 12),
		}, []string{"event"}),
		permits: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "scheduler_permit_wait_duration_seconds",
			Help: "For how long pods that had their place were held back there, by what came of it.", Buckets: seconds,
		}, []string{"result"}),
		called: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "scheduler_async_api_call_execution_total", Help: "Calls of the API that were made beside the scheduling of pods, by their type and result.",
		}, []string{"call_type", "result"}),
		callsTook: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "scheduler_async_api_call_execution_duration_seconds", Help: "How long these calls took.", Buckets: seconds,
		}, []string{"call_type", "result"}),
		callsWait: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "scheduler_pending_async_api_calls", Help: "Such calls that wait for others before them.",
		}, []string{"call_type"}),
		byEvent: map[plugins.Events]prometheus.Observer{},
		room:    newRoomWatch(reg),
	}
	if reg != nil {
		reg.MustRegister(t.points, t.runs, t.asked, t.events, t.permits, t.called, t.callsTook, t.callsWait)
	}
	return t
}

// event notes how long it took to handle an event, since its handling began.
func (t *timings) event(kind plugins.Events, began time.Time) {
	o := t.byEvent[kind]
	if o == nil {
		o = t.events.WithLabelValues(kind.String())
		t.byEvent[kind] = o
	}
	o.Observe(time.Since(began).Seconds())
}

// permitted notes the end of a wait for permission.
func (t *timings) permitted(w *waiting, now time.Time, err error) {
	t.permits.WithLabelValues(statusOf(err).String()).Observe(now.Sub(w.since).Seconds())
}

// done notes a call that has come back.
func (t *timings) done(x *call) {
	name := x.kind.String()
	if name == "" {
		return
	}
	result := "success"
	if x.err != nil {
		result = "error"
	}
	t.called.WithLabelValues(name, result).Inc()
	t.callsTook.WithLabelValues(name, result).Observe(x.took.Seconds())
}

// point is an extension point that is measured.
type point int

// The points, in the order of an attempt.
const (
	atPreFilter point = iota
	atFilter
	atPostFilter
	atScore
	atReserve
	atPermit
	atPreBind
	atBind
	pointCount
)

// String is the point's name, upstream's.
func (p point) String() string {
	return [pointCount]string{"PreFilter", "Filter", "PostFilter", "Score", "Reserve", "Permit", "PreBind", "Bind"}[p]
}

// status is what has come of an extension point.
type status int

// What may come of it.
const (
	wentWell status = iota
	wasRefused
	hasFailed
	statusCount
)

// String is the name of the status, upstream's.
func (s status) String() string {
	return [statusCount]string{"Success", "Unschedulable", "Error"}[s]
}

// statusOf is the status of something that should not fail.
func statusOf(err error) status {
	if err != nil {
		return hasFailed
	}
	return wentWell
}

// stopwatch measures the points of the attempts of one profile, one attempt at a time. A nil one
// measures nothing.
type stopwatch struct {
	*timings
	profile string
	mark    time.Time // when the last point ended
	shown   [pointCount][statusCount]prometheus.Observer

	plugins pluginWatch
}

func newStopwatch(t *timings, profile string, set *plugins.Set) *stopwatch {
	w := &stopwatch{timings: t, profile: profile}
	w.plugins.init(set)
	return w
}

// begin begins to measure anew.
func (w *stopwatch) begin() {
	if w != nil {
		w.mark = time.Now()
	}
}

// passed notes that a point has ended, which began when the one before did.
func (w *stopwatch) passed(at point, how status) {
	if w == nil {
		return
	}
	now := time.Now()
	w.took(at, how, now.Sub(w.mark))
	w.mark = now
}

// took notes how long a point took.
func (w *stopwatch) took(at point, how status, d time.Duration) {
	if w == nil {
		return
	}
	o := &w.shown[at][how]
	if *o == nil {
		*o = w.points.WithLabelValues(at.String(), how.String(), w.profile)
	}
	(*o).Observe(d.Seconds())
}
