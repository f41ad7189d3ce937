package scheduler

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kemudi/kemudi/internal/scheduler/plugins"
)

// metrics are upstream's, with upstream's names.
type metrics struct {
	attempts   *prometheus.CounterVec
	duration   *prometheus.HistogramVec
	algorithm  prometheus.Histogram
	sli        *prometheus.HistogramVec
	tries      prometheus.Histogram
	incoming   *prometheus.CounterVec
	pending    *prometheus.GaugeVec
	refused    *prometheus.GaugeVec
	flushed    prometheus.Counter
	cacheSize  *prometheus.GaugeVec
	preemption prometheus.Counter
	victims    prometheus.Histogram
	goroutines *prometheus.GaugeVec
	prepared   *prometheus.CounterVec
	preparing  *prometheus.HistogramVec

	*timings
	groups *groupMetrics // nil: there are no groups of pods
}

func newMetrics(reg prometheus.Registerer) *metrics {
	seconds := prometheus.ExponentialBuckets(0.001, 2, 15)
	m := &metrics{
		timings: newTimings(reg),
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "scheduler_schedule_attempts_total",
			Help: "Attempts to schedule pods, by result (scheduled, unschedulable, error).",
		}, []string{"profile", "result"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "scheduler_scheduling_attempt_duration_seconds",
			Help: "Duration of attempts to schedule a pod, deciding and binding, by result.", Buckets: seconds,
		}, []string{"profile", "result"}),
		algorithm: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "scheduler_scheduling_algorithm_duration_seconds",
			Help: "Duration of deciding where a pod goes.", Buckets: prometheus.ExponentialBuckets(0.00001, 2, 20),
		}),
		sli: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "scheduler_pod_scheduling_sli_duration_seconds",
			Help: "Time from a pod's first attempt until it is bound, by number of attempts.", Buckets: prometheus.ExponentialBuckets(0.01, 2, 20),
		}, []string{"attempts"}),
		tries: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "scheduler_pod_scheduling_attempts", Help: "Attempts that it took to schedule a pod.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 5),
		}),
		incoming: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "scheduler_queue_incoming_pods_total", Help: "Pods added to a queue, by the event that did it.",
		}, []string{"event", "queue"}),
		pending: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "scheduler_pending_pods",
			Help: "Pending pods: active, backoff, unschedulable and gated ones.",
		}, []string{"queue"}),
		refused: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "scheduler_unschedulable_pods", Help: "Unschedulable pods by the plugin that refused them.",
		}, []string{"plugin", "profile"}),
		flushed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "scheduler_pod_scheduled_after_flush_total",
			Help: "Pods that got a node when they were tried again although no event said that it would help: something should have woken them.",
		}),
		cacheSize: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "scheduler_cache_size", Help: "Nodes, pods and assumed pods that the scheduler knows.",
		}, []string{"type"}),
		preemption: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "scheduler_preemption_attempts_total", Help: "Attempts to make room by preemption.",
		}),
		victims: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "scheduler_preemption_victims", Help: "Pods that were chosen to make room for one pod.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 7),
		}),
		goroutines: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "scheduler_goroutines", Help: "Running goroutines by what they do.",
		}, []string{"operation"}),
		prepared: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "scheduler_dra_bindingconditions_allocations_total",
			Help: "Waits for devices with binding conditions, by what came of them (success, failure, timeout).",
		}, []string{"profile", "driver", "status"}),
		preparing: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "scheduler_dra_bindingconditions_wait_duration_seconds",
			Help: "Time for which pods waited for binding conditions of devices.", Buckets: prometheus.ExponentialBuckets(0.1, 2, 14),
		}, []string{"profile", "driver", "status"}),
	}
	if reg != nil {
		reg.MustRegister(m.attempts, m.duration, m.algorithm, m.sli, m.tries, m.incoming, m.pending,
			m.refused, m.flushed, m.cacheSize, m.preemption, m.victims, m.goroutines, m.prepared, m.preparing)
	}
	return m
}

// attempt notes the end of an attempt.
func (m *metrics) attempt(by *profile, result string, took time.Duration) {
	m.attempts.WithLabelValues(by.name, result).Inc()
	m.duration.WithLabelValues(by.name, result).Observe(took.Seconds())
}

// waited notes the end of a wait for devices of drivers.
func (m *metrics) waited(by *profile, w *waiting, now time.Time, err error) {
	status := "success"
	switch {
	case err != nil && err == w.Late:
		status = "timeout"
	case err != nil:
		status = "failure"
	}
	for _, driver := range w.Drivers {
		m.prepared.WithLabelValues(by.name, driver, status).Inc()
		m.preparing.WithLabelValues(by.name, driver, status).Observe(now.Sub(w.since).Seconds())
	}
}

// came notes that a pod has come to a place of the queue, and by what event.
func (m *metrics) came(event string, item *pending, to place) {
	if item.group != nil {
		return
	}
	switch to {
	case active, backoff, unschedulable, gated:
		m.incoming.WithLabelValues(event, string(to)).Inc()
	}
}

// bound notes a pod that has its node.
func (m *metrics) bound(item *pending) {
	attempts := "16+"
	if item.attempts < 16 {
		attempts = strconv.Itoa(item.attempts)
	}
	if item.flushed {
		m.flushed.Inc()
	}
	m.sli.WithLabelValues(attempts).Observe(time.Since(item.first).Seconds())
	m.tries.Observe(float64(item.attempts))
}

// sizes notes how much there is; the caller does so before it waits.
func (m *metrics) sizes(l *loop) {
	for _, p := range []place{backoff, unschedulable, gated} {
		m.pending.WithLabelValues(string(p)).Set(float64(l.queue.counts[p]))
	}
	m.pending.WithLabelValues(string(active)).Set(float64(l.queue.counts[active] + l.queue.counts[asking]))
	for _, by := range l.profiles {
		m.refusals(l.queue, by)
		by.watch.show()
	}
	m.cacheSize.WithLabelValues("nodes").Set(float64(l.snapshot.Len()))
	m.cacheSize.WithLabelValues("pods").Set(float64(l.snapshot.PodCount()))
	m.cacheSize.WithLabelValues("assumed_pods").Set(float64(l.queue.counts[flying]))
	m.goroutines.WithLabelValues("binding").Set(float64(l.calls.running))
	for kind, n := range l.calls.waiting {
		if name := callKind(kind).String(); name != "" {
			m.callsWait.WithLabelValues(name).Set(float64(n))
		}
	}
}

// refusals notes how many pods of a profile each of its plugins refused.
func (m *metrics) refusals(q *queue, by *profile) {
	byPlugin := make([]int, len(by.plugins.All))
	for refused, pods := range q.byRefused {
		for i := range byPlugin {
			if refused.by == by && refused.plugins&(1<<i) != 0 {
				byPlugin[i] += pods.count
			}
		}
	}
	for i, p := range by.plugins.All {
		if _, filters := p.(plugins.Filterer); filters {
			m.refused.WithLabelValues(p.Name(), by.name).Set(float64(byPlugin[i]))
		}
	}
}

// groupMetrics are upstream's of groups of pods.
type groupMetrics struct {
	attempts    *prometheus.CounterVec
	duration    *prometheus.HistogramVec
	algorithm   prometheus.Histogram
	preemptions *prometheus.CounterVec
	victims     prometheus.Histogram
}

func newGroupMetrics(reg prometheus.Registerer) *groupMetrics {
	seconds := prometheus.ExponentialBuckets(0.001, 2, 15)
	m := &groupMetrics{
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "scheduler_podgroup_schedule_attempts_total",
			Help: "Attempts to schedule groups of pods, by result (scheduled, unschedulable, error).",
		}, []string{"profile", "result"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "scheduler_podgroup_scheduling_attempt_duration_seconds",
			Help: "Duration of attempts to schedule a group of pods, by result.", Buckets: seconds,
		}, []string{"profile", "result"}),
		algorithm: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "scheduler_podgroup_scheduling_algorithm_duration_seconds",
			Help: "Duration of deciding where a group of pods goes.", Buckets: seconds,
		}),
		preemptions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "scheduler_workload_preemption_attempts_total", Help: "Attempts to make room for a group of pods, by result (success, failure).",
		}, []string{"result"}),
		victims: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "scheduler_workload_preemption_victims", Help: "Pods that were chosen to make room for a group of pods.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 10),
		}),
	}
	if reg != nil {
		reg.MustRegister(m.attempts, m.duration, m.algorithm, m.preemptions, m.victims)
	}
	return m
}

// attempt notes the end of an attempt.
func (m *groupMetrics) attempt(by *profile, result string, took time.Duration) {
	m.attempts.WithLabelValues(by.name, result).Inc()
	m.duration.WithLabelValues(by.name, result).Observe(took.Seconds())
}

// preempted notes what came of an attempt to make room.
func (m *groupMetrics) preempted(pre *groupPreemption) {
	if pre.nodes == nil {
		m.preemptions.WithLabelValues("failure").Inc()
		return
	}
	m.preemptions.WithLabelValues("success").Inc()
	m.victims.Observe(float64(len(pre.victims)))
}
