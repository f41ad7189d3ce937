package worker

import (
	"crypto/tls"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// certificate is the certificate that the node agent serves with, of which it is told how long it is good. One that
// is not there yet is left out.
type certificate func() (*tls.Certificate, error)

var servingTTL = prometheus.NewDesc("kubelet_certificate_manager_server_ttl_seconds",
	"Seconds until the certificate expires that the node's agent serves with; negative if it has expired.", nil, nil)

// Describe tells the registry what there is.
func (c certificate) Describe(ch chan<- *prometheus.Desc) { ch <- servingTTL }

// Collect tells the registry the value.
func (c certificate) Collect(ch chan<- prometheus.Metric) {
	if cert, err := c(); err == nil && cert.Leaf != nil {
		ch <- prometheus.MustNewConstMetric(servingTTL, prometheus.GaugeValue, time.Until(cert.Leaf.NotAfter).Seconds())
	}
}
