package authn

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// tokenMetrics count how tokens of service accounts are used: by what is in them, so that
// an operator sees who would suffer if those of old were gone.
type tokenMetrics struct {
	legacy, generated, manual, marked, stale, valid prometheus.Counter
}

// newTokenMetrics counts in reg, if there is one.
func newTokenMetrics(reg *prometheus.Registry) *tokenMetrics {
	m := &tokenMetrics{
		legacy: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "serviceaccount_legacy_tokens_total",
			Help: "Uses of tokens that are kept in secrets.",
		}),
		generated: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "serviceaccount_legacy_auto_token_uses_total",
			Help: "Uses of tokens in secrets that a cluster has made without being asked.",
		}),
		manual: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "serviceaccount_legacy_manual_token_uses_total",
			Help: "Uses of tokens in secrets that a person has made.",
		}),
		marked: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "serviceaccount_invalid_legacy_auto_token_uses_total",
			Help: "Uses of tokens in secrets that are marked invalid because nobody had used them for long.",
		}),
		stale: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "serviceaccount_stale_tokens_total",
			Help: "Uses of tokens of pods that should have been read anew by then.",
		}),
		valid: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "serviceaccount_valid_tokens_total",
			Help: "Uses of tokens of pods before they should be read anew.",
		}),
	}
	if reg != nil {
		reg.MustRegister(m.legacy, m.generated, m.manual, m.marked, m.stale, m.valid)
	}
	return m
}

// kept counts a good token in a secret.
func (m *tokenMetrics) kept(generated bool) {
	if generated {
		m.generated.Inc()
	} else {
		m.manual.Inc()
	}
}

// count counts the use of a token by what has come of it.
func (m *tokenMetrics) count(c *checked, err error) {
	if k := c.own.Kubernetes; err == nil && k != nil && k.WarnAfter != nil {
		if time.Now().After(k.WarnAfter.Time()) {
			m.stale.Inc()
		} else {
			m.valid.Inc()
		}
	}
	if marked := (*markedError)(nil); errors.As(err, &marked) {
		m.marked.Inc()
	}
}

// NewExpiry shows in reg how long the certificates of clients will be good, by requests: an operator is
// warned before nobody gets in any more.
func NewExpiry(reg *prometheus.Registry) prometheus.Observer {
	const hour, day = 60 * 60, 24 * 60 * 60
	expiry := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "apiserver_client_certificate_expiration_seconds",
		Help: "How long the certificates that requests were made with will be good, in seconds.",
		Buckets: []float64{
			0, hour / 2, hour, 2 * hour, 6 * hour, 12 * hour, day, 2 * day, 4 * day, 7 * day, 30 * day, 90 * day, 180 * day, 360 * day,
		},
	})
	reg.MustRegister(expiry)
	return expiry
}

// CacheMetrics count how often it is remembered whose tokens are. All caches of a server have the same.
type CacheMetrics struct {
	requests, fetches *prometheus.CounterVec
	active            *prometheus.GaugeVec
	latency           *prometheus.HistogramVec
}

// NewCacheMetrics counts in reg, if there is one.
func NewCacheMetrics(reg *prometheus.Registry) *CacheMetrics {
	m := &CacheMetrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "authentication_token_cache_request_total",
			Help: "Tokens that were shown, by whether it was remembered whose they are.",
		}, []string{"status"}),
		fetches: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "authentication_token_cache_fetch_total",
			Help: "Tokens whose user was found out anew, by whether anybody could say.",
		}, []string{"status"}),
		active: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "authentication_token_cache_active_fetch_count",
			Help: "Requests that wait for whose their token is: those that ask, and those that wait for the answer to another.",
		}, []string{"status"}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "authentication_token_cache_request_duration_seconds",
			Help:    "Time to say whose a token is.",
			Buckets: prometheus.DefBuckets,
		}, []string{"status"}),
	}
	if reg != nil {
		reg.MustRegister(m.requests, m.fetches, m.active, m.latency)
	}
	return m
}

// asked counts a token; status is hit or miss.
func (m *CacheMetrics) asked(status string, began time.Time) {
	m.requests.WithLabelValues(status).Inc()
	m.latency.WithLabelValues(status).Observe(time.Since(began).Seconds())
}

// fetched counts an answer; status is ok or error.
func (m *CacheMetrics) fetched(status string) { m.fetches.WithLabelValues(status).Inc() }

// waits counts somebody who waits until the result is called; status is in_flight or blocked.
func (m *CacheMetrics) waits(status string) (done func()) {
	g := m.active.WithLabelValues(status)
	g.Inc()
	return g.Dec
}
