package aggregate

import (
	"cmp"

	"github.com/prometheus/client_golang/prometheus"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/kemudi/kemudi/internal/api/apiregistration"
	"github.com/kemudi/kemudi/internal/cache"
)

// newLost counts in reg, if there is one, how often servers could not be used any more.
func newLost(reg *prometheus.Registry) *prometheus.CounterVec {
	lost := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "aggregator_unavailable_apiservice_total",
		Help: "How often an APIService could not be used any more, by its name and the reason.",
	}, []string{"name", "reason"})
	if reg != nil {
		reg.MustRegister(lost)
	}
	return lost
}

// usable shows of each APIService whether it can be used, when it is asked.
type usable struct{ services *cache.Cache }

var (
	_ prometheus.Collector = usable{}

	unavailable = prometheus.NewDesc("aggregator_unavailable_apiservice", "Whether an APIService cannot be used (1), by its name.", []string{"name"}, nil)
)

// Describe names the metric.
func (usable) Describe(ch chan<- *prometheus.Desc) { ch <- unavailable }

// Collect shows those of which it is known.
func (u usable) Collect(ch chan<- prometheus.Metric) {
	for _, it := range u.services.List("", nil) {
		s := it.Object.(*apiregistrationv1.APIService)
		c := apiregistration.Available(s)
		if c == nil {
			continue
		}
		value := 1.0
		if c.Status == apiregistrationv1.ConditionTrue {
			value = 0
		}
		ch <- prometheus.MustNewConstMetric(unavailable, prometheus.GaugeValue, value, s.Name)
	}
}

// count counts a server that could be used and cannot be any more.
func (a *Aggregator) count(name string, was *apiregistrationv1.APIServiceCondition, is apiregistrationv1.APIServiceCondition) {
	if could := was != nil && was.Status == apiregistrationv1.ConditionTrue; could && is.Status != apiregistrationv1.ConditionTrue {
		a.lost.WithLabelValues(name, cmp.Or(is.Reason, "UnknownReason")).Inc()
	}
}
