package apiserver

import (
	"bufio"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kemudi/kemudi/internal/cache"
)

// metrics are upstream's names where they mean the same.
type metrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	sli      *prometheus.HistogramVec
	sizes    *prometheus.HistogramVec
	inflight *prometheus.GaugeVec
	dropped  *prometheus.CounterVec
	watchers *prometheus.GaugeVec
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
		watchers: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "apiserver_longrunning_requests",
			Help: "Watches that are open now.",
		}, []string{"verb", "group", "version", "resource", "subresource", "scope", "component"}),
	}
	reg.MustRegister(m.requests, m.duration, m.sli, m.sizes, m.inflight, m.dropped, m.watchers)
	for _, kind := range []string{"readOnly", "mutating"} { // from the start, as alerts want them
		m.inflight.WithLabelValues(kind)
		m.dropped.WithLabelValues(kind)
	}
	return m
}

// objects tells how many objects of each resource there are, when it is asked.
type objects struct{ s *Server }

var (
	_ prometheus.Collector = objects{}

	storageObjects  = prometheus.NewDesc("apiserver_storage_objects", "Objects that are stored, by resource.", []string{"resource"}, nil)
	resourceObjects = prometheus.NewDesc("apiserver_resource_objects", "Objects that are stored, by group and resource.", []string{"group", "resource"}, nil)
)

// Describe names the metrics.
func (objects) Describe(ch chan<- *prometheus.Desc) {
	ch <- storageObjects
	ch <- resourceObjects
}

// Collect counts the objects in the caches.
func (o objects) Collect(ch chan<- prometheus.Metric) {
	seen := map[*cache.Cache]bool{}
	for _, versions := range o.s.routes.Load().groups {
		for _, plurals := range versions {
			for _, v := range plurals {
				if v.cache == nil || v.ver != nil || seen[v.cache] {
					continue
				}
				seen[v.cache] = true
				n := float64(v.cache.Len())
				ch <- prometheus.MustNewConstMetric(storageObjects, prometheus.GaugeValue, n, v.def.GroupResource().String())
				ch <- prometheus.MustNewConstMetric(resourceObjects, prometheus.GaugeValue, n, v.def.Group, v.def.Plural)
			}
		}
	}
}

// watcher counts a watch until the result is called.
func (m *metrics) watcher(c *call) (done func()) {
	gauge := m.watchers.WithLabelValues("WATCH", c.res.gvk.Group, c.res.gvk.Version, c.res.def.Plural, c.subName(), scopeOf(c.namespace, c.name), "apiserver")
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

// AuditEvent is one answered request.
type AuditEvent struct {
	ID, Verb, Path, User  string
	Namespace, Name       string
	Group, Resource, Sub  string
	Code                  int
	Received              time.Time
	Took                  time.Duration
	SourceAddr, UserAgent string
}

// withMetrics counts the request, and tells the audit hook of it.
func (s *Server) withMetrics(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		st := stateOf(r)
		cw := &countingWriter{ResponseWriter: w, st: st}
		defer func() {
			s.count(st, r)
			if s.o.Audit != nil {
				s.o.Audit(auditEvent(st, r, w))
			}
		}()
		next.ServeHTTP(cw, r)
	})
}

func auditEvent(st *state, r *http.Request, w http.ResponseWriter) *AuditEvent {
	in := st.info
	e := &AuditEvent{
		ID: w.Header().Get("Audit-Id"), Verb: in.Verb, Path: r.URL.RequestURI(), Namespace: in.Namespace, Name: in.Name,
		Group: in.Group, Resource: in.Plural, Sub: in.Sub, Code: st.code, Received: st.start, Took: time.Since(st.start),
		SourceAddr: r.RemoteAddr, UserAgent: r.UserAgent(),
	}
	if st.user != nil {
		e.User = st.user.GetName()
	}
	return e
}

func (s *Server) count(st *state, r *http.Request) {
	in := st.info
	verb, scope, group, version, plural, sub := strings.ToUpper(in.Verb), "", "", "", "", ""
	if in.Resource {
		res := s.routes.Load().lookup(in.Group, in.Version, in.Plural)
		if res == nil {
			return // no labels of what clients make up
		}
		group, version, plural, scope = in.Group, in.Version, in.Plural, scopeOf(in.Namespace, in.Name)
		if res.sub(in.Sub) != nil {
			sub = in.Sub
		}
		verb = metricVerb(in.Verb, r)
	} else if !isKnownMethod(r.Method) {
		verb = "other"
	}
	dryRun := ""
	if strings.Contains(r.URL.RawQuery, "dryRun=All") {
		dryRun = "All"
	}
	s.metrics.requests.WithLabelValues(verb, dryRun, group, version, plural, sub, scope, "apiserver", strconv.Itoa(st.code)).Inc()
	if in.LongRunning() {
		return
	}
	s.metrics.duration.WithLabelValues(verb, dryRun, group, version, plural, sub, scope, "apiserver").Observe(time.Since(st.start).Seconds())
	if dryRun == "" {
		s.metrics.sli.WithLabelValues(verb, group, version, plural, sub, scope, "apiserver").Observe(time.Since(st.start).Seconds())
	}
	if verb == "GET" || verb == "LIST" {
		s.metrics.sizes.WithLabelValues(verb, group, version, plural, sub, scope, "apiserver").Observe(float64(st.wrote))
	}
}

func isKnownMethod(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return true
	}
	return false
}

// metricVerb is upstream's name of a verb in metrics.
func metricVerb(verb string, r *http.Request) string {
	switch verb {
	case "create":
		return "POST"
	case "update":
		return "PUT"
	case "patch":
		if strings.HasPrefix(r.Header.Get("Content-Type"), "application/apply-patch+yaml") {
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
	w.ResponseWriter.WriteHeader(code)
}

func (w *countingWriter) Write(b []byte) (int, error) {
	if w.st.code == 0 {
		w.st.code = http.StatusOK
	}
	n, err := w.ResponseWriter.Write(b)
	w.st.wrote += int64(n)
	return n, err
}

// Flush and Hijack are for code that asks the writer itself for them.
func (w *countingWriter) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

// Hijack takes the connection over.
func (w *countingWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.st.code = http.StatusSwitchingProtocols
	return http.NewResponseController(w.ResponseWriter).Hijack()
}

// Unwrap gives http.ResponseController the writer below.
func (w *countingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
