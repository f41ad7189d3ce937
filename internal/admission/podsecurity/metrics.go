package podsecurity

import (
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/pod-security-admission/api"

	"github.com/kemudi/kemudi/internal/admission"
)

type metrics struct {
	evaluations, exemptions, errors *prometheus.CounterVec
	newest                          api.Version // of the standards that has a label of its own
}

// newMetrics counts in reg, if there is one.
func newMetrics(reg *prometheus.Registry) *metrics {
	m := &metrics{
		newest: api.GetAPIVersion(),
		evaluations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pod_security_evaluations_total",
			Help: "Pods and templates that were held against a Pod Security Standard, without those that are exempt.",
		}, []string{"decision", "policy_level", "policy_version", "mode", "request_operation", "resource", "subresource"}),
		exemptions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pod_security_exemptions_total",
			Help: "Pods and templates that were exempt from the Pod Security Standards.",
		}, []string{"request_operation", "resource", "subresource"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pod_security_errors_total",
			Help: "Pods and templates of which it was not clear what their namespace asks for; if not fatal, the strictest standard was taken.",
		}, []string{"fatal", "request_operation", "resource", "subresource"}),
	}
	if reg != nil {
		reg.MustRegister(m.evaluations, m.exemptions, m.errors)
	}
	return m
}

// verdict is what comes of a level for a pod: allow or deny, in the mode enforce, audit
// or warn.
type verdict struct {
	decision, mode string
	api.LevelVersion
}

func (m *metrics) evaluated(a *admission.Attributes, kind string, v verdict) {
	version := v.Version.String()
	switch {
	case v.Level == api.LevelPrivileged:
		version = api.VersionLatest // they are all the same
	case !v.Latest() && m.newest.Older(v.Version):
		version = "future"
	}
	m.evaluations.WithLabelValues(v.decision, string(v.Level), version, v.mode, strings.ToLower(a.Operation), kind, a.Sub).Inc()
}

func (m *metrics) exempt(a *admission.Attributes, kind string) {
	m.exemptions.WithLabelValues(strings.ToLower(a.Operation), kind, a.Sub).Inc()
}

func (m *metrics) failed(a *admission.Attributes, kind string, fatal bool) {
	m.errors.WithLabelValues(strconv.FormatBool(fatal), strings.ToLower(a.Operation), kind, a.Sub).Inc()
}
