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
