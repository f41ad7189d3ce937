package dra

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/status"
)

// metrics have upstream's names.
type metrics struct {
	operations *prometheus.HistogramVec
	calls      *prometheus.HistogramVec
}

// buckets reach from what needs no waiting to what has been given up.
var buckets = []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 40, 60}

func newMetrics(reg *prometheus.Registry, m *Manager) *metrics {
	out := &metrics{
		operations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "dra_operations_duration_seconds",
			Help: "Latency histogram in seconds for the duration of handling all ResourceClaims referenced by a pod when the pod starts or stops. " +
				"Identified by the name of the operation (PrepareResources or UnprepareResources) and separated by the success of the operation. " +
				"The number of failed operations is provided through the histogram's overall count.",
			Buckets: buckets,
		}, []string{"operation_name", "is_error"}),
		calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "dra_grpc_operations_duration_seconds",
			Help:    "Duration in seconds of the DRA gRPC operations",
			Buckets: buckets,
		}, []string{"driver_name", "method_name", "grpc_status_code"}),
	}
	reg.MustRegister(out.operations, out.calls, inUse{m})
	return out
}

// did counts what was done for a pod.
func (m *metrics) did(what string, began time.Time, err error) {
	m.operations.WithLabelValues(what, strconv.FormatBool(err != nil)).Observe(time.Since(began).Seconds())
}

// called counts a call of a driver.
func (m *metrics) called(driver, method string, began time.Time, err error) {
	m.calls.WithLabelValues(driver, method, status.Code(err).String()).Observe(time.Since(began).Seconds())
}

// inUse counts the claims that are ready for pods.
type inUse struct{ m *Manager }

var inUseDesc = prometheus.NewDesc("dra_resource_claims_in_use",
	"The number of ResourceClaims that are currently in use on the node, by driver name (driver_name label value) and across all drivers (special value <any> for driver_name). "+
		"Note that the sum of all by-driver counts is not the total number of in-use ResourceClaims because the same ResourceClaim might use devices from different drivers. "+
		"Instead, use the count for the <any> driver_name.", []string{"driver_name"}, nil)

func (c inUse) Describe(ch chan<- *prometheus.Desc) { ch <- inUseDesc }

func (c inUse) Collect(ch chan<- prometheus.Metric) {
	count := map[string]int{"<any>": 0}
	c.m.mu.Lock()
	for _, claim := range c.m.mu.claims {
		count["<any>"]++
		for driver := range claim.DriverState {
			count[driver]++
		}
	}
	c.m.mu.Unlock()
	for driver, n := range count {
		ch <- prometheus.MustNewConstMetric(inUseDesc, prometheus.GaugeValue, float64(n), driver)
	}
}
