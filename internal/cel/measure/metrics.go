// Package measure counts how long expressions take to be compiled and to be evaluated, whoever has them: rules of
// custom kinds and policies. What single policies cost is counted where they are asked.
package measure

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kemudi/kemudi/internal/obs"
)

// Metrics are upstream's; nil counts nothing.
type Metrics struct{ compiled, evaluated prometheus.Histogram }

// New counts in reg, if there is one. All who ask with one registry share what they count.
func New(reg *prometheus.Registry) *Metrics {
	return &Metrics{
		compiled: obs.Shared(reg, prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "apiserver_cel_compilation_duration_seconds",
			Help: "How long it took to compile expressions of rules and policies, in seconds.",
		})),
		evaluated: obs.Shared(reg, prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "apiserver_cel_evaluation_duration_seconds",
			Help: "How long it took to evaluate the expressions of rules and policies for a write, in seconds.",
		})),
	}
}

// Compiled counts what was compiled since began.
func (m *Metrics) Compiled(began time.Time) {
	if m != nil {
		m.compiled.Observe(time.Since(began).Seconds())
	}
}

// Evaluated counts what was evaluated for one write.
func (m *Metrics) Evaluated(took time.Duration) {
	if m != nil {
		m.evaluated.Observe(took.Seconds())
	}
}
