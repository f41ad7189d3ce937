package signer

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// metrics have upstream's names.
type metrics struct {
	fetchedAt prometheus.Gauge
	dataAt    prometheus.Gauge
	fetches   *prometheus.CounterVec
	signings  *prometheus.CounterVec
	latency   *prometheus.HistogramVec
}

func newMetrics(reg *prometheus.Registry) *metrics {
	m := &metrics{
		fetchedAt: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "apiserver_externaljwt_fetch_keys_success_timestamp",
			Help: "When the keys of service accounts' tokens were last got from their signer, in seconds since 1970.",
		}),
		dataAt: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "apiserver_externaljwt_fetch_keys_data_timestamp",
			Help: "As of when these keys are, as the signer says, in seconds since 1970.",
		}),
		fetches: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_externaljwt_fetch_keys_request_total",
			Help: "How often the signer was asked for the keys, by what came of it.",
		}, []string{"code"}),
		signings: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_externaljwt_sign_request_total",
			Help: "How often a token was to be signed, by what came of it.",
		}, []string{"code"}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "apiserver_externaljwt_request_duration_seconds",
			Help:    "Time that calls of the signer took.",
			Buckets: []float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"method", "code"}),
	}
	reg.MustRegister(m.fetchedAt, m.dataAt, m.fetches, m.signings, m.latency)
	return m
}

func (m *metrics) called(method string, began time.Time, err error) {
	m.latency.WithLabelValues(method, code(err)).Observe(time.Since(began).Seconds())
}

func (m *metrics) signed(err error) { m.signings.WithLabelValues(code(err)).Inc() }

func (m *metrics) fetched(err error) {
	m.fetches.WithLabelValues(code(err)).Inc()
	if err == nil {
		m.fetchedAt.SetToCurrentTime()
	}
}

// asOf notes as of when the keys are.
func (m *metrics) asOf(at time.Time) { m.dataAt.Set(float64(at.UnixNano()) / 1e9) }

// code is the code of the call that failed, or upstream's word for what is wrong with an answer.
func code(err error) string {
	if err == nil {
		return codes.OK.String()
	}
	if s := (interface{ GRPCStatus() *status.Status })(nil); errors.As(err, &s) {
		return s.GRPCStatus().Code().String()
	}
	return "unknown-non-grpc"
}
