package hook

import (
	"crypto/x509"
	"errors"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are upstream's of certificates that are out of date.
type metrics struct{ noNames, sha1 prometheus.Counter }

// newMetrics registers the metrics; reg may be nil.
func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		noNames: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "apiserver_webhooks_x509_missing_san_total", Help: "Calls of webhooks whose certificates have no name but a common one, which failed for that.",
		}),
		sha1: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "apiserver_webhooks_x509_insecure_sha1_total", Help: "Calls of webhooks whose certificates are signed by SHA-1, which failed for that.",
		}),
	}
	if reg != nil {
		reg.MustRegister(m.noNames, m.sha1)
	}
	return m
}

// failed counts a call that has failed, if certificates are why.
func (m *metrics) failed(err error) {
	var names x509.HostnameError
	var unknown x509.UnknownAuthorityError
	var insecure x509.InsecureAlgorithmError
	switch {
	case errors.As(err, &names) && strings.Contains(err.Error(), "x509: certificate relies on legacy Common Name field"):
		m.noNames.Inc()
	case errors.As(err, &insecure) && strings.Contains(err.Error(), "SHA1"), errors.As(err, &unknown) && strings.Contains(err.Error(), "insecure algorithm SHA1"):
		m.sha1.Inc()
	}
}
