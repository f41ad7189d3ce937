package admit

import "github.com/prometheus/client_golang/prometheus"

// NewPreemptions returns the count of the pods that had to go for one that the cluster cannot do without, by what there
// was too little of.
func NewPreemptions(reg prometheus.Registerer) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_preemptions", Help: "Pods that had to go for one that the cluster cannot do without, by what there was too little of."}, []string{"preemption_signal"})
	reg.MustRegister(c)
	return c
}
