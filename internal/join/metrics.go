package join

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are upstream's metrics of how the certificates of a node's agent are renewed, and of when the one expires by which
// the API knows it.
func (i *Identity) Metrics() prometheus.Collector { return (*certificates)(i) }

type certificates Identity

var (
	clientTTL     = prometheus.NewDesc("kubelet_certificate_manager_client_ttl_seconds", "Seconds until the certificate expires by which the node's agent is known to the API; negative if it has expired.", nil, nil)
	clientErrors  = prometheus.NewDesc("kubelet_certificate_manager_client_expiration_renew_errors", "Counter of certificate renewal errors.", nil, nil)
	servingErrors = prometheus.NewDesc("kubelet_server_expiration_renew_errors", "Counter of certificate renewal errors.", nil, nil)
)

func (c *certificates) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{clientTTL, clientErrors, servingErrors} {
		ch <- d
	}
}

func (c *certificates) Collect(ch chan<- prometheus.Metric) {
	if cert := c.client.get(); cert != nil && cert.Leaf != nil {
		ch <- prometheus.MustNewConstMetric(clientTTL, prometheus.GaugeValue, time.Until(cert.Leaf.NotAfter).Seconds())
	}
	ch <- prometheus.MustNewConstMetric(clientErrors, prometheus.CounterValue, float64(c.client.failures.Load()))
	ch <- prometheus.MustNewConstMetric(servingErrors, prometheus.CounterValue, float64(c.serving.failures.Load()))
}
