package tunnel

import (
	"bufio"
	"net"
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics have upstream's names.
type metrics struct {
	webSockets  *prometheus.CounterVec // by what their streams are for, and who makes them those of a runtime
	translated  *prometheus.CounterVec // those of commands, by the code
	tunneled    *prometheus.CounterVec // those of ports, by the code
	backends    *prometheus.CounterVec // of logs, by whether their certificates counted
	tlsFailures prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		webSockets: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_websocket_streaming_requests_total",
			Help: "Streams over WebSocket (exec, attach, portforward), by who translates them: this server, always.",
		}, []string{"subresource", "proxy_type"}),
		translated: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_stream_translator_requests_total",
			Help: "Requests for exec and attach over WebSocket, by whether they were taken: 200 if so, as what becomes of the command is told within.",
		}, []string{"code"}),
		tunneled: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_stream_tunnel_requests_total",
			Help: "Requests for port forwards over WebSocket, by the code of the answer.",
		}, []string{"code"}),
		backends: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kube_apiserver_pod_logs_insecure_backend_total",
			Help: "Requests for logs of pods, by whether the certificate of the node's agent had to be good: enforce_tls or skip_tls_allowed.",
		}, []string{"usage"}),
		tlsFailures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kube_apiserver_pod_logs_backend_tls_failure_total",
			Help: "Requests for logs of pods that failed because the certificate of the node's agent is not good.",
		}),
	}
	reg.MustRegister(m.webSockets, m.translated, m.tunneled, m.backends, m.tlsFailures)
	return m
}

// Who makes streams over WebSocket those of a runtime.
const (
	translatedHere = "translated_at_apiserver"
	tunneledHere   = "tunneled_at_apiserver"
)

// noted is a writer that notes the code of an answer: that a connection was taken over is one, too.
type noted struct {
	http.ResponseWriter
	code int
}

// WriteHeader begins the answer.
func (n *noted) WriteHeader(code int) {
	n.code = code
	n.ResponseWriter.WriteHeader(code)
}

// Hijack takes the connection over.
func (n *noted) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(n.ResponseWriter).Hijack()
	if err == nil && n.code == 0 {
		n.code = http.StatusSwitchingProtocols
	}
	return conn, rw, err
}

// Unwrap gives http.ResponseController the writer below.
func (n *noted) Unwrap() http.ResponseWriter { return n.ResponseWriter }

// translation is the code under which an exec or attach is counted.
func (n *noted) translation() string {
	if n.code == http.StatusSwitchingProtocols {
		return "200"
	}
	return "400"
}

// tunneling is that of a port forward.
func (n *noted) tunneling() string { return strconv.Itoa(n.code) }
