package numa

import "github.com/prometheus/client_golang/prometheus"

// What can be near to each other: processors of whole cores, those below one cache, all of one NUMA node.
const (
	boundaryCore  = "physical_cpu"
	boundaryCache = "uncore_cache"
	boundaryNode  = "numa_node"
)

// Alignments count what has been given near to each other, and what could not be. The names are upstream's.
type Alignments struct{ done, failed *prometheus.CounterVec }

// NewAlignments returns counters of nothing.
func NewAlignments(reg *prometheus.Registry) *Alignments {
	labels := []string{"scope", "boundary"}
	a := &Alignments{
		done: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_container_aligned_compute_resources_count",
			Help: "Cumulative number of aligned compute resources allocated to containers by alignment type.",
		}, labels),
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_container_aligned_compute_resources_failure_count",
			Help: "Cumulative number of failures to allocate aligned compute resources to containers by alignment type.",
		}, labels),
	}
	reg.MustRegister(a.done, a.failed)
	for _, v := range []*prometheus.CounterVec{a.done, a.failed} {
		v.WithLabelValues(ScopeContainer, boundaryCore)
		v.WithLabelValues(ScopeContainer, boundaryNode)
		v.WithLabelValues(ScopePod, boundaryNode)
	}
	a.done.WithLabelValues(ScopeContainer, boundaryCache)
	return a
}

// Cores counts a container that has got whole cores, or not.
func (a *Alignments) Cores(got bool) {
	a.which(got).WithLabelValues(ScopeContainer, boundaryCore).Inc()
}

// Cache counts a container all of whose processors are below one cache.
func (a *Alignments) Cache() { a.done.WithLabelValues(ScopeContainer, boundaryCache).Inc() }

// Node counts a container, or a pod, that has got all of one node, or not.
func (a *Alignments) Node(scope string, got bool) {
	a.which(got).WithLabelValues(scope, boundaryNode).Inc()
}

func (a *Alignments) which(got bool) *prometheus.CounterVec {
	if got {
		return a.done
	}
	return a.failed
}
