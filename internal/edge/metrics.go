package edge

import "github.com/prometheus/client_golang/prometheus"

// metrics are those of the edge, for who asks its status port.
type metrics struct {
	requests    [6]prometheus.Counter // by the first figure of the status; 0: none
	duration    prometheus.Histogram
	again       prometheus.Counter
	refused     *prometheus.CounterVec
	connections prometheus.Gauge
	streams     prometheus.Gauge
	sites       prometheus.Gauge
	changes     prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kemudi_edge_requests_total", Help: "Requests that were answered, by class of status."}, []string{"code"})
	m := &metrics{
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kemudi_edge_request_duration_seconds", Help: "How long requests took until their last byte, without those that were upgraded.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
		}),
		again:       prometheus.NewCounter(prometheus.CounterOpts{Name: "kemudi_edge_retries_total", Help: "Requests that were given to another endpoint because one could not be reached."}),
		refused:     prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kemudi_edge_refused_total", Help: "Requests that were refused before an endpoint saw them, by reason."}, []string{"reason"}),
		connections: prometheus.NewGauge(prometheus.GaugeOpts{Name: "kemudi_edge_connections", Help: "Connections of clients that are open."}),
		streams:     prometheus.NewGauge(prometheus.GaugeOpts{Name: "kemudi_edge_streams", Help: "Connections through Gateways that are no HTTP."}),
		sites:       prometheus.NewGauge(prometheus.GaugeOpts{Name: "kemudi_edge_sites", Help: "Ingresses that are served."}),
		changes:     prometheus.NewCounter(prometheus.CounterOpts{Name: "kemudi_edge_changes_total", Help: "Changes of what is served."}),
	}
	for i, class := range []string{"none", "1xx", "2xx", "3xx", "4xx", "5xx"} {
		m.requests[i] = requests.WithLabelValues(class)
	}
	reg.MustRegister(requests, m.duration, m.again, m.refused, m.connections, m.streams, m.sites, m.changes)
	return m
}
