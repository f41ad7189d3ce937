package rootca

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// metrics are how often something was published, and how long that took, by the HTTP code of what came of it.
type metrics struct {
	syncs *prometheus.CounterVec
	took  *prometheus.HistogramVec
}

// mapMetrics are those of ConfigMaps, bundleMetrics those of ClusterTrustBundles, under upstream's names.
type (
	mapMetrics    struct{ metrics }
	bundleMetrics struct{ metrics }
)

func newMapMetrics(reg prometheus.Registerer) *mapMetrics {
	return &mapMetrics{newMetrics(reg,
		prometheus.CounterOpts{Name: "root_ca_cert_publisher_sync_total", Help: "Looks at the ConfigMap with the cluster's CA of a namespace."},
		prometheus.HistogramOpts{Name: "root_ca_cert_publisher_sync_duration_seconds", Help: "How long they took."})}
}

func newBundleMetrics(reg prometheus.Registerer) *bundleMetrics {
	return &bundleMetrics{newMetrics(reg,
		prometheus.CounterOpts{Name: "clustertrustbundle_publisher_sync_total", Help: "Looks at the ClusterTrustBundle with the cluster's CA."},
		prometheus.HistogramOpts{Name: "clustertrustbundle_publisher_sync_duration_seconds", Help: "How long they took."})}
}

func newMetrics(reg prometheus.Registerer, syncs prometheus.CounterOpts, took prometheus.HistogramOpts) metrics {
	took.Buckets = prometheus.ExponentialBuckets(0.001, 2, 15)
	code := []string{"code"}
	m := metrics{prometheus.NewCounterVec(syncs, code), prometheus.NewHistogramVec(took, code)}
	reg.MustRegister(m.syncs, m.took)
	return m
}

// published notes what has come of publishing, which began at a time.
func (m *metrics) published(began time.Time, err error) {
	code := http.StatusOK
	if err != nil {
		code = http.StatusInternalServerError
		var status apierrors.APIStatus
		if errors.As(err, &status) && status.Status().Code != 0 {
			code = int(status.Status().Code)
		}
	}
	m.syncs.WithLabelValues(strconv.Itoa(code)).Inc()
	m.took.WithLabelValues(strconv.Itoa(code)).Observe(time.Since(began).Seconds())
}
