package apiserver

import (
	"bufio"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kemudi/kemudi/internal/apiserver/call"
	"github.com/kemudi/kemudi/internal/apiserver/timeouts"
	"github.com/kemudi/kemudi/internal/audit"
)

// metrics are upstream's names where they mean the same.
type metrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	sli      *prometheus.HistogramVec
	sizes    *prometheus.HistogramVec
	inflight *prometheus.GaugeVec
	reading  prometheus.Gauge // of inflight
	writing  prometheus.Gauge

	attempts *prometheus.CounterVec
	asked    *prometheus.HistogramVec
	users    *prometheus.CounterVec

	deprecated *prometheus.GaugeVec
	dropped    *prometheus.CounterVec
	watchers   *prometheus.GaugeVec

	decided *prometheus.CounterVec
	took    *prometheus.HistogramVec

	terminated *prometheus.CounterVec
	events     *watchEvents
	sent       *prometheus.HistogramVec // sizes of bodies
	listed     *prometheus.HistogramVec // watches that begin with what there is
	strangers  prometheus.Counter       // with whom there was no TLS

	storeTook   *prometheus.HistogramVec
	storeAsked  *prometheus.CounterVec
	storeFailed *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_request_total",
			Help: "Requests answered, by verb, group, version, resource, subresource, scope and HTTP code.",
		}, []string{"verb", "dry_run", "group", "version", "resource", "subresource", "scope", "component", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "apiserver_request_duration_seconds",
			Help:    "Time to answer requests that are not long-running.",
			Buckets: []float64{0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60},
			// As a native histogram, too, for who scrapes those: as fine as upstream's.
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160,
		}, []string{"verb", "dry_run", "group", "version", "resource", "subresource", "scope", "component"}),
		sli: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "apiserver_request_sli_duration_seconds",
			Help:    "Time to answer requests that are neither long-running nor dry runs: what service levels are measured by.",
			Buckets: []float64{0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60},
		}, []string{"verb", "group", "version", "resource", "subresource", "scope", "component"}),
		sizes: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "apiserver_response_sizes",
			Help:    "Size of the answers to reads, in bytes.",
			Buckets: prometheus.ExponentialBuckets(1000, 10.0, 7),
		}, []string{"verb", "group", "version", "resource", "subresource", "scope", "component"}),
		inflight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "apiserver_current_inflight_requests",
			Help: "Requests that run now, by kind.",
		}, []string{"request_kind"}),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_dropped_requests_total",
			Help: "Requests refused because too many ran, by kind.",
		}, []string{"request_kind"}),
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "authentication_attempts",
			Help: "Requests that were asked who makes them, by what has come of it.",
		}, []string{"result"}),
		asked: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "authentication_duration_seconds",
			Help:    "Time to find out who makes a request, by what has come of it.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
		}, []string{"result"}),
		users: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "authenticated_user_requests",
			Help: "Requests of which it is known who makes them, by a few kinds of users.",
		}, []string{"username"}),
		deprecated: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "apiserver_requested_deprecated_apis",
			Help: "Deprecated versions that have been asked for, with the release that is without them.",
		}, []string{"group", "version", "resource", "subresource", "removed_release"}),
		decided: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "authorization_attempts_total",
			Help: "Requests of which it was asked who may make them, by the answer.",
		}, []string{"result"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "authorization_duration_seconds",
			Help:    "Time until that was answered.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
		}, []string{"result"}),
		watchers: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "apiserver_longrunning_requests",
			Help: "Watches that are open now.",
		}, []string{"verb", "group", "version", "resource", "subresource", "scope", "component"}),
	}
	m.addFurther(reg)
	reg.MustRegister(m.requests, m.duration, m.sli, m.sizes, m.inflight, m.dropped, m.watchers, m.deprecated, m.attempts, m.asked, m.users, m.decided, m.took)
	for _, kind := range []string{"readOnly", "mutating"} { // from the start, as alerts want them
		m.inflight.WithLabelValues(kind)
		m.dropped.WithLabelValues(kind)
	}
	m.reading, m.writing = m.inflight.WithLabelValues("readOnly"), m.inflight.WithLabelValues("mutating")
	return m
}

// authenticated counts a request that was asked who makes it.
func (m *metrics) authenticated(u user.Info, err error, began time.Time) {
	result := "success"
	switch {
	case err != nil:
		result = "error"
	case u == nil:
		result = "failure"
	default:
		m.users.WithLabelValues(kindOfUser(u.GetName())).Inc()
	}
	m.attempts.WithLabelValues(result).Inc()
	m.asked.WithLabelValues(result).Observe(time.Since(began).Seconds())
}

// kindOfUser is upstream's few kinds of users.
func kindOfUser(name string) string {
	switch {
	case name == "admin", name == "client", name == "kube_proxy", name == "kubelet", name == "system:serviceaccount:kube-system:default":
		return name
	case strings.Contains(name, "@"):
		return "email_id"
	}
	return "other"
}

// watch counts a watch until the result is called.
func (m *metrics) watch(c *call.Call) (done func()) {
	gauge := m.watchers.WithLabelValues("WATCH", c.Resource.GVK.Group, c.Resource.GVK.Version, c.Resource.Def.Plural, c.SubName(), scopeOf(c.Namespace, c.Name), "apiserver")
	gauge.Inc()
	return gauge.Dec
}

func scopeOf(namespace, name string) string {
	switch {
	case name != "":
		return "resource"
	case namespace != "":
		return "namespace"
	}
	return "cluster"
}

// withMetrics counts the request.
func (s *Server) withMetrics(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		st := stateOf(r)
		cw := &countingWriter{ResponseWriter: w, st: st}
		defer st.after(func() { s.end(&st.record, s.seriesOf(r)) })
		next.ServeHTTP(cw, r)
	})
}

// authorized counts a decision.
func (m *metrics) authorized(decision authorizer.Decision, err error, took time.Duration) {
	result := "no-opinion"
	switch {
	case decision == authorizer.DecisionAllow:
		result = "allowed"
	case err != nil:
		result = "error"
	case decision == authorizer.DecisionDeny:
		result = "denied"
	}
	m.decided.WithLabelValues(result).Inc()
	m.took.WithLabelValues(result).Observe(took.Seconds())
}

// seriesOf is a request as it is counted; without a verb if it is not.
func (s *Server) seriesOf(r *http.Request) series {
	in := stateOf(r).info
	of := series{verb: strings.ToUpper(in.Verb), long: in.LongRunning()}
	if in.Resource {
		res := s.routes.Load().lookup(in.Group, in.Version, in.Plural)
		if res == nil {
			return series{} // no labels of what clients make up
		}
		of.group, of.version, of.plural, of.scope = in.Group, in.Version, in.Plural, scopeOf(in.Namespace, in.Name)
		if res.Subresource(in.Sub) != nil {
			of.sub = in.Sub
		}
		if of.verb = metricVerb(in.Verb, r.Header.Get("Content-Type")); in.Tunnel() {
			of.verb = "CONNECT"
		}
	} else if !isKnownMethod(r.Method) {
		of.verb = "other"
	}
	if strings.Contains(r.URL.RawQuery, "dryRun=All") {
		of.dryRun = "All"
	}
	return of
}

// series is what a call is counted under.
type series struct {
	verb, dryRun                string
	group, version, plural, sub string
	scope                       string
	long                        bool // it stays open for as long as it likes
}

// record is what is told of a call, over HTTP or from within, when it has ended.
type record struct {
	start time.Time
	code  int   // of the answer
	wrote int64 // bytes of it, over HTTP

	terminated bool // the server has refused it to protect itself
}

// begin is called at the beginning of each call, end at its end, whoever made it and
// whatever came of it (A4).
func (s *Server) begin() record { return record{start: time.Now()} }

func (s *Server) end(rec *record, of series) {
	if of.verb == "" {
		return
	}
	m := s.metrics
	m.requests.WithLabelValues(of.verb, of.dryRun, of.group, of.version, of.plural, of.sub, of.scope, "apiserver", strconv.Itoa(rec.code)).Inc()
	if rec.terminated || rec.code == http.StatusGatewayTimeout {
		m.terminated.WithLabelValues(of.verb, of.group, of.version, of.plural, of.sub, of.scope, "apiserver", strconv.Itoa(rec.code)).Inc()
	}
	if of.long {
		return
	}
	took := time.Since(rec.start).Seconds()
	m.duration.WithLabelValues(of.verb, of.dryRun, of.group, of.version, of.plural, of.sub, of.scope, "apiserver").Observe(took)
	if of.dryRun == "" {
		m.sli.WithLabelValues(of.verb, of.group, of.version, of.plural, of.sub, of.scope, "apiserver").Observe(took)
	}
	if rec.wrote > 0 && (of.verb == "GET" || of.verb == "LIST") {
		m.sizes.WithLabelValues(of.verb, of.group, of.version, of.plural, of.sub, of.scope, "apiserver").Observe(float64(rec.wrote))
	}
}

func isKnownMethod(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return true
	}
	return false
}

// metricVerb is upstream's name of a verb in metrics. kind is a patch's.
func metricVerb(verb, kind string) string {
	switch verb {
	case "create":
		return "POST"
	case "update":
		return "PUT"
	case "patch":
		if strings.HasPrefix(kind, string(types.ApplyYAMLPatchType)) {
			return "APPLY"
		}
	}
	return strings.ToUpper(verb)
}

// countingWriter notes the code and size of an answer.
type countingWriter struct {
	http.ResponseWriter
	st *state
}

func (w *countingWriter) WriteHeader(code int) {
	if w.st.code == 0 || w.st.code < 200 {
		w.st.code = code
	}
	w.hurry()
	if w.st.early && code >= 200 {
		w.st.give()
	}
	w.st.audit.Started(code)
	w.ResponseWriter.WriteHeader(code)
}

func (w *countingWriter) Write(b []byte) (int, error) {
	if w.st.code == 0 {
		w.st.code = http.StatusOK
		w.hurry()
		w.st.audit.Started(http.StatusOK)
	}
	if told := w.st.audit; told != nil {
		began := time.Now()
		defer func() { told.Spent(audit.Answer, time.Since(began)) }()
	}
	n, err := w.ResponseWriter.Write(b)
	w.st.wrote += int64(n)
	return n, err
}

// Sent counts what was sent beside the writer.
func (w *countingWriter) Sent(n int64) { w.st.wrote += n }

// hurry lets the client send only a little longer what nobody has read.
func (w *countingWriter) hurry() {
	if w.st.unread > 0 {
		timeouts.Hurry(w.ResponseWriter, w.st.unread)
		w.st.unread = 0
	}
}

// Flush and Hijack are for code that asks the writer itself for them.
func (w *countingWriter) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

// Hijack takes the connection over.
func (w *countingWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.st.code = http.StatusSwitchingProtocols
	if w.st.early {
		w.st.give()
	}
	w.st.audit.Started(http.StatusSwitchingProtocols)
	return http.NewResponseController(w.ResponseWriter).Hijack()
}

// Unwrap gives http.ResponseController the writer below.
func (w *countingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
