package apiserver

import (
	"maps"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kemudi/kemudi/internal/apiserver/answer"
	"github.com/kemudi/kemudi/internal/apiserver/served"
)

// watchEvents has what was sent to watches, by resource at its version. Who sends counts in an [answer.Sent]; metrics
// are made of these when they are asked for.
type watchEvents struct {
	mu struct {
		sync.Mutex
		of map[schema.GroupVersionResource]*answer.Sent
	}
}

var (
	_ prometheus.Collector = (*watchEvents)(nil)

	eventsTotal = prometheus.NewDesc("apiserver_watch_events_total", "Events sent to watches.", []string{"group", "version", "resource"}, nil)
	eventSizes  = prometheus.NewDesc("apiserver_watch_events_sizes", "Size of the events sent to watches, in bytes.", []string{"group", "version", "resource"}, nil)
)

// of is where the events of watches of a resource are counted.
func (w *watchEvents) of(r *served.Resource) *answer.Sent {
	key := r.GVK.GroupVersion().WithResource(r.Def.Plural)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.of[key] == nil {
		if w.mu.of == nil {
			w.mu.of = map[schema.GroupVersionResource]*answer.Sent{}
		}
		w.mu.of[key] = &answer.Sent{}
	}
	return w.mu.of[key]
}

// Describe names the metrics.
func (w *watchEvents) Describe(ch chan<- *prometheus.Desc) {
	ch <- eventsTotal
	ch <- eventSizes
}

// Collect tells what was counted.
func (w *watchEvents) Collect(ch chan<- prometheus.Metric) {
	w.mu.Lock()
	all := maps.Clone(w.mu.of)
	w.mu.Unlock()
	for r, sent := range all {
		events, bytes, below := sent.Totals()
		ch <- prometheus.MustNewConstMetric(eventsTotal, prometheus.CounterValue, float64(events), r.Group, r.Version, r.Resource)
		ch <- prometheus.MustNewConstHistogram(eventSizes, events, float64(bytes), below, r.Group, r.Version, r.Resource)
	}
}
