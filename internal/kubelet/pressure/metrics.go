package pressure

import "github.com/prometheus/client_golang/prometheus"

// NewEvictions returns the count of the pods that were evicted because the node was short of something.
func NewEvictions(reg prometheus.Registerer) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_evictions", Help: "Cumulative number of pod evictions by eviction signal"}, []string{"eviction_signal"})
	reg.MustRegister(c)
	return c
}
