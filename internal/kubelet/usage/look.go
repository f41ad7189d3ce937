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
	There      []*runtimeapi.Container // that the runtime has
	Node       *machine.Usage          // nil: not known
	Failed     bool                    // not all could be seen
}

var _ prometheus.Collector = (*Look)(nil)

var (
	ofContainer = []string{"container", "namespace", "pod"}
	ofPod       = []string{"namespace", "pod"}

	containerCPU    = prometheus.NewDesc("container_cpu_usage_seconds_total", "Cumulative cpu time consumed by the container in core-seconds", ofContainer, nil)
	containerMemory = prometheus.NewDesc("container_memory_working_set_bytes", "Current working set of the container in bytes", ofContainer, nil)
	containerStart  = prometheus.NewDesc("container_start_time_seconds", "Start time of the container since unix epoch in seconds", ofContainer, nil)
	containerSwap   = prometheus.NewDesc("container_swap_usage_bytes", "Current amount of the container swap usage in bytes. Reported only on non-windows systems", ofContainer, nil)
	swapLimit       = prometheus.NewDesc("container_swap_limit_bytes", "Current amount of the container swap limit in bytes. Reported only on non-windows systems", ofContainer, nil)
	podCPU          = prometheus.NewDesc("pod_cpu_usage_seconds_total", "Cumulative cpu time consumed by the pod in core-seconds", ofPod, nil)
	podMemory       = prometheus.NewDesc("pod_memory_working_set_bytes", "Current working set of the pod in bytes", ofPod, nil)
	podSwap         = prometheus.NewDesc("pod_swap_usage_bytes", "Current amount of the pod swap usage in bytes. Reported only on non-windows systems", ofPod, nil)
	nodeSwap        = prometheus.NewDesc("node_swap_usage_bytes", "Current swap usage of the node in bytes. Reported only on non-windows systems", nil, nil)
	nodeCPU         = prometheus.NewDesc("node_cpu_usage_seconds_total", "Cumulative cpu time consumed by the node in core-seconds", nil, nil)
	nodeMemory      = prometheus.NewDesc("node_memory_working_set_bytes", "Current working set of the node in bytes", nil, nil)
	scrapeError     = prometheus.NewDesc("resource_scrape_error", "1 if there was an error while getting container metrics, 0 otherwise", nil, nil)
)

// Describe tells the registry what there is.
func (l *Look) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		containerCPU, containerMemory, containerStart, containerSwap, swapLimit, podCPU, podMemory, podSwap, nodeCPU, nodeMemory, nodeSwap, scrapeError,
	} {
		ch <- d
	}
}

// sum is what several use together.
type sum struct {
	cpu, memory float64
	swap        float64
	swaps       bool // it is known how much of it is swapped
	at          time.Time
}

func (s *sum) add(cpu, memory float64, at time.Time) {
	s.cpu += cpu
	s.memory += memory
	if at.After(s.at) {
		s.at = at
	}
}

// measures are what a sum is told by.
type measures struct{ cpu, memory, swap *prometheus.Desc }

func (s *sum) tell(ch chan<- prometheus.Metric, by measures, labels ...string) {
	ch <- prometheus.NewMetricWithTimestamp(s.at, prometheus.MustNewConstMetric(by.cpu, prometheus.CounterValue, s.cpu, labels...))
	ch <- prometheus.NewMetricWithTimestamp(s.at, prometheus.MustNewConstMetric(by.memory, prometheus.GaugeValue, s.memory, labels...))
	if s.swaps {
		ch <- prometheus.NewMetricWithTimestamp(s.at, prometheus.MustNewConstMetric(by.swap, prometheus.GaugeValue, s.swap, labels...))
	}
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
	began := map[string]float64{}
	for _, c := range l.There {
		began[c.Id] = float64(c.CreatedAt) / 1e9
	}
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
		name := s.GetAttributes().GetMetadata().GetName()
		if w := s.GetSwap().GetSwapUsageBytes(); w != nil {
			one.swap, one.swaps = float64(w.Value), true
			if left := s.Swap.GetSwapAvailableBytes(); left != nil {
				ch <- prometheus.NewMetricWithTimestamp(one.at, prometheus.MustNewConstMetric(swapLimit, prometheus.GaugeValue, float64(w.Value+left.Value), name, p.namespace, p.name))
			}
		}
		one.tell(ch, measures{containerCPU, containerMemory, containerSwap}, name, p.namespace, p.name)
		if at, ok := began[s.GetAttributes().GetId()]; ok {
			ch <- prometheus.MustNewConstMetric(containerStart, prometheus.GaugeValue, at, name, p.namespace, p.name)
		}
		pods[p].add(one.cpu, one.memory, one.at)
		pods[p].swap, pods[p].swaps = pods[p].swap+one.swap, pods[p].swaps || one.swaps
	}
	for p, s := range pods {
		s.tell(ch, measures{podCPU, podMemory, podSwap}, p.namespace, p.name)
	}
	if l.Node != nil {
		node := sum{l.Node.CPU, l.Node.Memory, l.Node.SwapTotal - l.Node.SwapFree, true, l.Node.At}
		node.tell(ch, measures{nodeCPU, nodeMemory, nodeSwap})
	}
}
