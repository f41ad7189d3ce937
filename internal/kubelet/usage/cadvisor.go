package usage

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/kubelet/cri"
)

// Scrape is one look at what containers use, to be collected in the form of cAdvisor, which dashboards read.
type Scrape struct {
	Stats      []*runtimeapi.ContainerStats
	Containers []*runtimeapi.Container // those that the runtime has
	Cgroups    map[string]string       // of pods, by their UIDs
	Capacity   v1.ResourceList         // of the node
	Now        time.Time
}

var _ prometheus.Collector = (*Scrape)(nil)

var (
	ofScrape = []string{"container", "id", "image", "name", "namespace", "pod"}

	scrapedCPU     = prometheus.NewDesc("container_cpu_usage_seconds_total", "Cumulative cpu time consumed in seconds.", append([]string{"cpu"}, ofScrape...), nil)
	scrapedUsage   = prometheus.NewDesc("container_memory_usage_bytes", "Current memory usage in bytes, including all memory regardless of when it was accessed", ofScrape, nil)
	scrapedSet     = prometheus.NewDesc("container_memory_working_set_bytes", "Current working set in bytes.", ofScrape, nil)
	scrapedRSS     = prometheus.NewDesc("container_memory_rss", "Size of RSS in bytes.", ofScrape, nil)
	scrapedSwap    = prometheus.NewDesc("container_memory_swap", "Container swap usage in bytes.", ofScrape, nil)
	scrapedFS      = prometheus.NewDesc("container_fs_usage_bytes", "Number of bytes that are consumed by the container on this filesystem.", append([]string{"device"}, ofScrape...), nil)
	scrapedStart   = prometheus.NewDesc("container_start_time_seconds", "Start time of the container since unix epoch in seconds.", ofScrape, nil)
	scrapedSeen    = prometheus.NewDesc("container_last_seen", "Last time a container was seen by the exporter", ofScrape, nil)
	scrapedCores   = prometheus.NewDesc("machine_cpu_cores", "Number of logical CPU cores.", nil, nil)
	scrapedMachine = prometheus.NewDesc("machine_memory_bytes", "Amount of memory installed on the machine.", nil, nil)
)

// Describe tells the registry what there is.
func (s *Scrape) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		scrapedCPU, scrapedUsage, scrapedSet, scrapedRSS, scrapedSwap, scrapedFS, scrapedStart, scrapedSeen, scrapedCores, scrapedMachine,
	} {
		ch <- d
	}
}

// Collect tells the registry the values. What the runtime has not measured is left out.
func (s *Scrape) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.MustNewConstMetric(scrapedCores, prometheus.GaugeValue, float64(s.Capacity.Cpu().Value()))
	ch <- prometheus.MustNewConstMetric(scrapedMachine, prometheus.GaugeValue, float64(s.Capacity.Memory().Value()))
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
		s.collect(ch, st, c, []string{
			a.GetMetadata().GetName(), s.Cgroups[uid] + "/" + c.Id, imageOf(c), c.Id, a.Labels[cri.LabelPodNamespace], a.Labels[cri.LabelPodName],
		})
	}
}

func (s *Scrape) collect(ch chan<- prometheus.Metric, st *runtimeapi.ContainerStats, c *runtimeapi.Container, labels []string) {
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
	gauge(scrapedFS, st.GetWritableLayer().GetTimestamp(), st.GetWritableLayer().GetUsedBytes(), append([]string{""}, labels...)...)
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
