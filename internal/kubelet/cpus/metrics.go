package cpus

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/cpuset"

	"github.com/kemudi/kemudi/internal/kubelet/numa"
)

// metrics have upstream's names.
type metrics struct{ requests, errors prometheus.Counter }

func newMetrics(m *Manager) *metrics {
	out := &metrics{
		requests: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubelet_cpu_manager_pinning_requests_total", Help: "The number of cpu core allocations which required pinning.",
		}),
		errors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubelet_cpu_manager_pinning_errors_total", Help: "The number of cpu core allocations which required pinning failed.",
		}),
	}
	m.o.Registry.MustRegister(out.requests, out.errors, &gauges{
		m:         m,
		pool:      prometheus.NewDesc("kubelet_cpu_manager_shared_pool_size_millicores", "The size of the shared CPU pool for non-guaranteed QoS pods, in millicores.", nil, nil),
		exclusive: prometheus.NewDesc("kubelet_cpu_manager_exclusive_cpu_allocation_count", "The total number of CPUs exclusively allocated to containers running on this node", nil, nil),
		node:      prometheus.NewDesc("kubelet_cpu_manager_allocation_per_numa", "Number of CPUs allocated per NUMA node", []string{"numa_node"}, nil),
	})
	return out
}

// count counts what a container has got, by how near to each other it is.
func (m *Manager) count(got cpuset.CPUSet) {
	if m.o.Rules.FullCores {
		m.o.Alignments.Cores(true)
	}
	if !m.o.Rules.ByCache {
		return
	}
	caches := map[int]bool{}
	for _, id := range got.UnsortedList() {
		caches[m.o.Machine.CPUs[id].Cache] = true
	}
	if len(caches) == 1 {
		m.o.Alignments.Cache()
	}
}

// gauges tell who has what, when they are asked.
type gauges struct {
	m                     *Manager
	pool, exclusive, node *prometheus.Desc
}

// Describe says which gauges there are.
func (g *gauges) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{g.pool, g.exclusive, g.node} {
		out <- d
	}
}

// Collect reads them.
func (g *gauges) Collect(out chan<- prometheus.Metric) {
	machine := g.m.o.Machine
	g.m.mu.Lock()
	shared, given := g.m.mu.pool.Difference(g.m.reserved).Size(), cpuset.New()
	for _, of := range g.m.mu.pods {
		for _, set := range of {
			given = given.Union(set)
		}
	}
	g.m.mu.Unlock()
	out <- prometheus.MustNewConstMetric(g.pool, prometheus.GaugeValue, float64(shared*1000))
	out <- prometheus.MustNewConstMetric(g.exclusive, prometheus.GaugeValue, float64(given.Size()))
	for _, n := range machine.Nodes {
		on := given.Intersection(machine.In(numa.MaskOf(n.ID))).Size()
		out <- prometheus.MustNewConstMetric(g.node, prometheus.GaugeValue, float64(on), strconv.Itoa(n.ID))
	}
}
