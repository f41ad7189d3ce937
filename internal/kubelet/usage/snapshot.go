package usage

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/kubelet/cgroup"
	"github.com/kemudi/kemudi/internal/kubelet/cri"
	"github.com/kemudi/kemudi/internal/kubelet/machine"
)

// Snapshot is one look at what a node, its pods and their containers use. It is collected in the form of cAdvisor, which
// dashboards read, and summed up by Summary.
type Snapshot struct {
	Stats      []*runtimeapi.ContainerStats
	Containers []*runtimeapi.Container // those that the runtime has
	Pods       []Pod
	Capacity   v1.ResourceList // of the node
	// Read says what the kernel counts for a cgroup.
	Read func(path string) cgroup.Values
	// PodsCgroup is that of all pods together; empty: there is none.
	PodsCgroup string

	Now  time.Time
	Node *Node // nil: there is no machine
}

// Pod is a pod of the node.
type Pod struct {
	UID, Namespace, Name string
	Started              time.Time
	Cgroup               string              // empty: it has none of its own
	Interfaces           []machine.Interface // of its network, unless that is the node's
}

// Node is what is known of the machine.
type Node struct {
	Info       machine.Info
	Used       machine.Usage
	Before     *machine.Usage // an earlier look; nil: there was none
	Interfaces []machine.Interface
	Default    string             // the name of the interface by which it reaches others
	Disk       machine.FileSystem // that volumes and logs are on
	Images     machine.FileSystem // that images are on
	ImagesUsed *runtimeapi.FilesystemUsage
	Layers     machine.FileSystem // that writable layers are on
	LayersUsed *runtimeapi.FilesystemUsage
	Processes  int64
	MostOfThem int64
}

var _ prometheus.Collector = (*Snapshot)(nil)

var (
	ofScrape  = []string{"container", "id", "image", "name", "namespace", "pod"}
	ofMachine = []string{"boot_id", "machine_id", "system_uuid"}

	scrapedCPU     = prometheus.NewDesc("container_cpu_usage_seconds_total", "Cumulative cpu time consumed in seconds.", append([]string{"cpu"}, ofScrape...), nil)
	scrapedUsage   = prometheus.NewDesc("container_memory_usage_bytes", "Current memory usage in bytes, including all memory regardless of when it was accessed", ofScrape, nil)
	scrapedSet     = prometheus.NewDesc("container_memory_working_set_bytes", "Current working set in bytes.", ofScrape, nil)
	scrapedRSS     = prometheus.NewDesc("container_memory_rss", "Size of RSS in bytes.", ofScrape, nil)
	scrapedSwap    = prometheus.NewDesc("container_memory_swap", "Container swap usage in bytes.", ofScrape, nil)
	scrapedFS      = prometheus.NewDesc("container_fs_usage_bytes", "Number of bytes that are consumed by the container on this filesystem.", append([]string{"device"}, ofScrape...), nil)
	scrapedLimit   = prometheus.NewDesc("container_fs_limit_bytes", "Number of bytes that can be consumed by the container on this filesystem.", append([]string{"device"}, ofScrape...), nil)
	scrapedStart   = prometheus.NewDesc("container_start_time_seconds", "Start time of the container since unix epoch in seconds.", ofScrape, nil)
	scrapedSeen    = prometheus.NewDesc("container_last_seen", "Last time a container was seen by the exporter", ofScrape, nil)
	scrapedCores   = prometheus.NewDesc("machine_cpu_cores", "Number of logical CPU cores.", ofMachine, nil)
	scrapedMachine = prometheus.NewDesc("machine_memory_bytes", "Amount of memory installed on the machine.", ofMachine, nil)
	scrapedSwaps   = prometheus.NewDesc("machine_swap_bytes", "Amount of swap memory available on the machine.", ofMachine, nil)
)

// Describe tells the registry what there is.
func (s *Snapshot) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		scrapedCPU, scrapedUsage, scrapedSet, scrapedRSS, scrapedSwap, scrapedFS, scrapedLimit, scrapedStart, scrapedSeen,
		scrapedCores, scrapedMachine, scrapedSwaps, memoryFailures, memoryLimit, memoryKept,
	} {
		ch <- d
	}
	for _, list := range [][]counter{ofCgroup, ofQuota, ofDevice} {
		for _, c := range list {
			ch <- c.desc
		}
	}
	for _, t := range ofInterface {
		ch <- t.desc
	}
}

// Collect tells the registry the values. What has not been measured is left out.
func (s *Snapshot) Collect(ch chan<- prometheus.Metric) {
	var info machine.Info
	if s.Node != nil {
		info = s.Node.Info
	}
	constant := func(d *prometheus.Desc, v float64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, info.BootID, info.MachineID, info.SystemUUID)
	}
	constant(scrapedCores, float64(s.Capacity.Cpu().Value()))
	constant(scrapedMachine, float64(s.Capacity.Memory().Value()))
	if s.Node != nil {
		constant(scrapedSwaps, s.Node.Used.SwapTotal)
		s.collectNode(ch)
	}
	cgroups := map[string]string{}
	for i := range s.Pods {
		p := &s.Pods[i]
		cgroups[p.UID] = p.Cgroup
		s.collectPod(ch, p)
	}
	known := map[string]*runtimeapi.Container{}
	for _, c := range s.Containers {
		known[c.Id] = c
	}
	for _, st := range s.Stats {
		a := st.GetAttributes()
		c, uid := known[a.GetId()], a.GetLabels()[cri.LabelPodUID]
		if c == nil || uid == "" || st.Cpu == nil && st.Memory == nil {
			continue
		}
		path := cgroups[uid] + "/" + c.Id
		labels := []string{a.GetMetadata().GetName(), path, imageOf(c), c.Id, a.Labels[cri.LabelPodNamespace], a.Labels[cri.LabelPodName]}
		s.collect(ch, st, c, labels)
		if cgroups[uid] != "" {
			tell(ch, s.Read(path), labels)
		}
	}
}

// collectNode tells of the machine, which is the cgroup that has all others in it.
func (s *Snapshot) collectNode(ch chan<- prometheus.Metric) {
	u, labels := &s.Node.Used, []string{"", "/", "", "", "", ""}
	gauge := func(d *prometheus.Desc, v float64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	ch <- prometheus.MustNewConstMetric(scrapedCPU, prometheus.CounterValue, u.CPU, append([]string{"total"}, labels...)...)
	gauge(scrapedUsage, u.Memory+u.Available-u.Free)
	gauge(scrapedSet, u.Memory)
	gauge(scrapedRSS, u.Anonymous)
	gauge(scrapedSwap, u.SwapTotal-u.SwapFree)
	gauge(scrapedSeen, float64(s.Now.Unix()))
	gauge(scrapedStart, float64(u.Booted.Unix()))
	gauge(memoryLimit, float64(s.Capacity.Memory().Value()))
	tellTraffic(ch, s.Node.Interfaces, labels)
}

// collectPod tells of a pod as a whole.
func (s *Snapshot) collectPod(ch chan<- prometheus.Metric, p *Pod) {
	labels := []string{"", p.Cgroup, "", "", p.Namespace, p.Name}
	tellTraffic(ch, p.Interfaces, labels)
	if p.Cgroup == "" {
		return
	}
	v := s.Read(p.Cgroup)
	gauge := func(d *prometheus.Desc, n uint64, ok bool) {
		if ok {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
		}
	}
	said := func(d *prometheus.Desc, key string) {
		n, ok := v[key]
		gauge(d, n, ok)
	}
	if n, ok := v["cpu.stat usage_usec"]; ok {
		ch <- prometheus.MustNewConstMetric(scrapedCPU, prometheus.CounterValue, float64(n)/1e6, append([]string{"total"}, labels...)...)
	}
	said(scrapedUsage, "memory.current")
	working, ok := v.WorkingSet()
	gauge(scrapedSet, working, ok)
	said(scrapedRSS, "memory.stat anon")
	said(scrapedSwap, "memory.swap.current")
	tell(ch, v, labels)
}

func (s *Snapshot) collect(ch chan<- prometheus.Metric, st *runtimeapi.ContainerStats, c *runtimeapi.Container, labels []string) {
	gauge := func(d *prometheus.Desc, at int64, v *runtimeapi.UInt64Value, labels ...string) {
		if v != nil {
			ch <- prometheus.NewMetricWithTimestamp(time.Unix(0, at), prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v.Value), labels...))
		}
	}
	if v := st.GetCpu().GetUsageCoreNanoSeconds(); v != nil {
		m := prometheus.MustNewConstMetric(scrapedCPU, prometheus.CounterValue, float64(v.Value)/1e9, append([]string{"total"}, labels...)...)
		ch <- prometheus.NewMetricWithTimestamp(time.Unix(0, st.Cpu.Timestamp), m)
	}
	at := st.GetMemory().GetTimestamp()
	gauge(scrapedUsage, at, st.GetMemory().GetUsageBytes(), labels...)
	gauge(scrapedSet, at, st.GetMemory().GetWorkingSetBytes(), labels...)
	gauge(scrapedRSS, at, st.GetMemory().GetRssBytes(), labels...)
	gauge(scrapedSwap, st.GetSwap().GetTimestamp(), st.GetSwap().GetSwapUsageBytes(), labels...)
	device := append([]string{""}, labels...)
	gauge(scrapedFS, st.GetWritableLayer().GetTimestamp(), st.GetWritableLayer().GetUsedBytes(), device...)
	if s.Node != nil {
		ch <- prometheus.MustNewConstMetric(scrapedLimit, prometheus.GaugeValue, float64(s.Node.Layers.Capacity), device...)
	}
	ch <- prometheus.MustNewConstMetric(scrapedStart, prometheus.GaugeValue, float64(c.CreatedAt)/1e9, labels...)
	ch <- prometheus.MustNewConstMetric(scrapedSeen, prometheus.GaugeValue, float64(s.Now.Unix()), labels...)
}

// imageOf is the image as the pod names it, if that is known.
func imageOf(c *runtimeapi.Container) string {
	if name := c.GetImage().GetUserSpecifiedImage(); name != "" {
		return name
	}
	return c.GetImage().GetImage()
}
