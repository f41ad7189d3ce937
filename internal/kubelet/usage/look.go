package usage

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/kubelet/cri"
	"github.com/kemudi/kemudi/internal/kubelet/machine"
)

// Look is one look at what containers use, to be collected in the form that the
// metrics server reads.
type Look struct {
	Containers []*runtimeapi.ContainerStats
	Node       *machine.Usage // nil: not known
	Failed     bool           // not all could be seen
}

var _ prometheus.Collector = (*Look)(nil)

var (
	ofContainer = []string{"container", "namespace", "pod"}
	ofPod       = []string{"namespace", "pod"}

	containerCPU    = prometheus.NewDesc("container_cpu_usage_seconds_total", "Cumulative cpu time consumed by the container in core-seconds", ofContainer, nil)
	containerMemory = prometheus.NewDesc("container_memory_working_set_bytes", "Current working set of the container in bytes", ofContainer, nil)
	podCPU          = prometheus.NewDesc("pod_cpu_usage_seconds_total", "Cumulative cpu time consumed by the pod in core-seconds", ofPod, nil)
	podMemory       = prometheus.NewDesc("pod_memory_working_set_bytes", "Current working set of the pod in bytes", ofPod, nil)
	nodeCPU         = prometheus.NewDesc("node_cpu_usage_seconds_total", "Cumulative cpu time consumed by the node in core-seconds", nil, nil)
	nodeMemory      = prometheus.NewDesc("node_memory_working_set_bytes", "Current working set of the node in bytes", nil, nil)
	scrapeError     = prometheus.NewDesc("resource_scrape_error", "1 if there was an error while getting container metrics, 0 otherwise", nil, nil)
)

// Describe tells the registry what there is.
func (l *Look) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{containerCPU, containerMemory, podCPU, podMemory, nodeCPU, nodeMemory, scrapeError} {
		ch <- d
	}
}

// sum is what several use together.
type sum struct {
	cpu, memory float64
	at          time.Time
}

func (s *sum) add(cpu, memory float64, at time.Time) {
	s.cpu += cpu
	s.memory += memory
	if at.After(s.at) {
		s.at = at
	}
}

func (s *sum) tell(ch chan<- prometheus.Metric, cpu, memory *prometheus.Desc, labels ...string) {
	ch <- prometheus.NewMetricWithTimestamp(s.at, prometheus.MustNewConstMetric(cpu, prometheus.CounterValue, s.cpu, labels...))
	ch <- prometheus.NewMetricWithTimestamp(s.at, prometheus.MustNewConstMetric(memory, prometheus.GaugeValue, s.memory, labels...))
}

// Collect tells the registry the values.
func (l *Look) Collect(ch chan<- prometheus.Metric) {
	failed := 0.0
	if l.Failed {
		failed = 1
	}
	ch <- prometheus.MustNewConstMetric(scrapeError, prometheus.GaugeValue, failed)
	type pod struct{ namespace, name string }
	pods := map[pod]*sum{}
	for _, s := range l.Containers {
		labels := s.GetAttributes().GetLabels()
		if labels[cri.LabelPodUID] == "" || s.Cpu == nil || s.Memory == nil {
			continue
		}
		p := pod{labels[cri.LabelPodNamespace], labels[cri.LabelPodName]}
		if pods[p] == nil {
			pods[p] = &sum{}
		}
		var one sum
		one.add(float64(s.Cpu.GetUsageCoreNanoSeconds().GetValue())/1e9, float64(s.Memory.GetWorkingSetBytes().GetValue()), time.Unix(0, s.Cpu.Timestamp))
		one.tell(ch, containerCPU, containerMemory, s.GetAttributes().GetMetadata().GetName(), p.namespace, p.name)
		pods[p].add(one.cpu, one.memory, one.at)
	}
	for p, s := range pods {
		s.tell(ch, podCPU, podMemory, p.namespace, p.name)
	}
	if l.Node != nil {
		node := sum{l.Node.CPU, l.Node.Memory, l.Node.At}
		node.tell(ch, nodeCPU, nodeMemory)
	}
}
