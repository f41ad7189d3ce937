package kubelet

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	config "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/kubelet/cri"
)

// serveResources answers with what containers and pods use now, in the form
// that the metrics server reads.
func (a *Agent) serveResources(w http.ResponseWriter, r *http.Request) {
	resp, err := a.o.Runtime.ListContainerStats(r.Context(), &runtimeapi.ListContainerStatsRequest{})
	reg := prometheus.NewRegistry()
	u := &usage{stats: resp.GetStats()}
	if !a.o.Simulated {
		var nodeErr error
		u.node, nodeErr = nodeUsage()
		err = errors.Join(err, nodeErr)
	}
	if u.failed = err != nil; u.failed {
		a.o.Log.Warn("look at what containers use", "err", err)
	}
	reg.MustRegister(u)
	promhttp.HandlerFor(reg, promhttp.HandlerOpts{}).ServeHTTP(w, r)
}

// usage is one look at what containers use.
type usage struct {
	stats  []*runtimeapi.ContainerStats
	node   *sum // nil: not known
	failed bool
}

var _ prometheus.Collector = (*usage)(nil)

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
func (u *usage) Describe(ch chan<- *prometheus.Desc) {
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
func (u *usage) Collect(ch chan<- prometheus.Metric) {
	failed := 0.0
	if u.failed {
		failed = 1
	}
	ch <- prometheus.MustNewConstMetric(scrapeError, prometheus.GaugeValue, failed)
	type pod struct{ namespace, name string }
	pods := map[pod]*sum{}
	for _, s := range u.stats {
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
	if u.node != nil {
		u.node.tell(ch, nodeCPU, nodeMemory)
	}
}

// nodeUsage is what the whole machine has used, and uses.
func nodeUsage() (*sum, error) {
	cpu, err := os.ReadFile("/proc/stat")
	if err != nil {
		return nil, fmt.Errorf("read what the node uses: %w", err)
	}
	memory, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return nil, fmt.Errorf("read what the node uses: %w", err)
	}
	return parseUsage(string(cpu), string(memory), time.Now())
}

// ticks is how many units of /proc/stat are a second, on every architecture of Linux.
const ticks = 100

var errProc = errors.New("read what the node uses: /proc is not as expected")

// parseUsage reads /proc/stat, of which idle time and what is counted in other
// columns already do not count, and /proc/meminfo.
func parseUsage(stat, meminfo string, now time.Time) (*sum, error) {
	s := &sum{at: now}
	line, _, _ := strings.Cut(stat, "\n")
	f := strings.Fields(line)
	if len(f) < 9 || f[0] != "cpu" {
		return nil, errProc
	}
	for _, i := range []int{1, 2, 3, 6, 7, 8} { // user, nice, system, irq, softirq, steal
		n, err := strconv.ParseUint(f[i], 10, 64)
		if err != nil {
			return nil, errProc
		}
		s.cpu += float64(n) / ticks
	}
	kib := map[string]float64{}
	for line := range strings.Lines(meminfo) {
		var name string
		var n float64
		if _, err := fmt.Sscan(line, &name, &n); err == nil {
			kib[name] = n
		}
	}
	if kib["MemTotal:"] == 0 {
		return nil, errProc
	}
	s.memory = (kib["MemTotal:"] - kib["MemAvailable:"]) * 1024
	return s, nil
}

// serveConfig answers with how the agent is configured, as far as upstream's
// agent has the same settings.
func (a *Agent) serveConfig(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, map[string]any{"kubeletconfig": config.KubeletConfiguration{
		TypeMeta: metav1.TypeMeta{Kind: "KubeletConfiguration", APIVersion: "kubelet.config.k8s.io/v1beta1"},
		Port:     int32(a.o.Port), MaxPods: int32(a.o.Settings.MaxPods), ClusterDomain: a.o.ClusterDomain, ClusterDNS: a.o.ClusterDNS,
		CgroupRoot: a.o.CgroupParent, PodLogsDir: a.o.PodLogsDir,
		Authentication: config.KubeletAuthentication{
			Anonymous: config.KubeletAnonymousAuthentication{Enabled: ptr.To(false)}, Webhook: config.KubeletWebhookAuthentication{Enabled: ptr.To(true)},
		},
		Authorization: config.KubeletAuthorization{Mode: config.KubeletAuthorizationModeWebhook},
	}})
}
