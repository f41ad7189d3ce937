package tunnel

import "github.com/prometheus/client_golang/prometheus"

// metrics have upstream's names.
type metrics struct {
	webSockets  *prometheus.CounterVec // by what their streams are for, and who makes them those of a runtime
	backends    *prometheus.CounterVec // of logs, by whether their certificates counted
	tlsFailures prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		webSockets: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_websocket_streaming_requests_total",
			Help: "Streams over WebSocket (exec, attach, portforward), by who translates them: this server, always.",
		}, []string{"subresource", "proxy_type"}),
		backends: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kube_apiserver_pod_logs_insecure_backend_total",
			Help: "Requests for logs of pods, by whether the certificate of the node's agent had to be good: enforce_tls or skip_tls_allowed.",
		}, []string{"usage"}),
		tlsFailures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kube_apiserver_pod_logs_backend_tls_failure_total",
			Help: "Requests for logs of pods that failed because the certificate of the node's agent is not good.",
		}),
	}
	reg.MustRegister(m.webSockets, m.backends, m.tlsFailures)
	return m
}

// Who makes streams over WebSocket those of a runtime.
const (
	translatedHere = "translated_at_apiserver"
	tunneledHere   = "tunneled_at_apiserver"
)
