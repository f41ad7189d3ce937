package obs

import (
	"context"
	"log/slog"
	"maps"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
)

// slis are what has become of the checks so far, by endpoint, name and outcome.
type slis map[sli]uint64

type sli struct {
	endpoint, name string
	failed         bool
}

var (
	checkGauge = prometheus.NewDesc("kubernetes_healthcheck", "Whether a check passes (1), by its name and the endpoint.", []string{"name", "type"}, nil)
	checkTotal = prometheus.NewDesc("kubernetes_healthchecks_total", "How often a check has run, by its name, the endpoint and the outcome.", []string{"name", "type", "status"}, nil)
)

// SLIs serves the outcome of all checks as metrics, those by which service levels are measured: each request runs
// them. endpoints are those of Install.
func (h *Health) SLIs(log *slog.Logger, endpoints ...string) http.Handler {
	if len(endpoints) == 0 {
		endpoints = defaultEndpoints
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		now := slis{}
		for _, endpoint := range endpoints {
			for _, c := range h.list(endpoint == "readyz") {
				now[sli{endpoint, c.Name, h.run(r.Context(), endpoint, c) != nil}]++
			}
		}
		reg := prometheus.NewRegistry()
		reg.MustRegister(outcomes{now, h.noted()})
		MetricsHandler(reg, log).ServeHTTP(w, r)
	})
}

// run runs a check for an endpoint, and counts what has become of it.
func (h *Health) run(ctx context.Context, endpoint string, c Check) error {
	err := run(ctx, c)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.ran == nil {
		h.mu.ran = slis{}
	}
	h.mu.ran[sli{endpoint, c.Name, err != nil}]++
	return err
}

// noted are the counts.
func (h *Health) noted() slis {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.mu.ran)
}

// outcomes are those of checks just now, and since the process began.
type outcomes struct{ now, ever slis }

var _ prometheus.Collector = outcomes{}

// Describe names the metrics.
func (outcomes) Describe(ch chan<- *prometheus.Desc) {
	ch <- checkGauge
	ch <- checkTotal
}

// Collect shows them.
func (o outcomes) Collect(ch chan<- prometheus.Metric) {
	for of := range o.now {
		passes := 1.0
		if of.failed {
			passes = 0
		}
		ch <- prometheus.MustNewConstMetric(checkGauge, prometheus.GaugeValue, passes, of.name, of.endpoint)
	}
	for of, n := range o.ever {
		status := "success"
		if of.failed {
			status = "error"
		}
		ch <- prometheus.MustNewConstMetric(checkTotal, prometheus.CounterValue, float64(n), of.name, of.endpoint, status)
	}
}
