package usage

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kemudi/kemudi/internal/kubelet/cgroup"
	"github.com/kemudi/kemudi/internal/kubelet/machine"
)

// counter is a metric that is a number of a cgroup.
type counter struct {
	desc *prometheus.Desc
	key  string // of cgroup.Values; of a device, what is counted of it
	unit float64
	kind prometheus.ValueType
}

const (
	whole = 1
	micro = 1e-6
	count = prometheus.CounterValue
	gauge = prometheus.GaugeValue
)

// ofCgroup is told of each cgroup, ofQuota if its use of CPUs is limited, and ofDevice for each device that it reads or writes.
var (
	ofCgroup = []counter{
		{prometheus.NewDesc("container_cpu_user_seconds_total", "Cumulative user cpu time consumed in seconds.", ofScrape, nil), "cpu.stat user_usec", micro, count},
		{prometheus.NewDesc("container_cpu_system_seconds_total", "Cumulative system cpu time consumed in seconds.", ofScrape, nil), "cpu.stat system_usec", micro, count},
		{prometheus.NewDesc("container_spec_cpu_period", "CPU period of the container.", ofScrape, nil), "cpu.max period", whole, gauge},
		{prometheus.NewDesc("container_spec_cpu_shares", "CPU share of the container.", ofScrape, nil), "cpu.shares", whole, gauge},
		{prometheus.NewDesc("container_processes", "Number of processes running inside the container.", ofScrape, nil), "cgroup.procs", whole, gauge},
		{prometheus.NewDesc("container_memory_failcnt", "Number of memory usage hits limits", ofScrape, nil), "memory.events max", whole, count},
		{prometheus.NewDesc("container_memory_cache", "Number of bytes of page cache memory.", ofScrape, nil), "memory.stat file", whole, gauge},
		{prometheus.NewDesc("container_memory_mapped_file", "Size of memory mapped files in bytes.", ofScrape, nil), "memory.stat file_mapped", whole, gauge},
		{prometheus.NewDesc("container_memory_kernel_usage", "Size of kernel memory allocated in bytes.", ofScrape, nil), "memory.stat kernel", whole, gauge},
		{prometheus.NewDesc("container_memory_total_active_file_bytes", "Current total active file in bytes.", ofScrape, nil), "memory.stat active_file", whole, gauge},
		{prometheus.NewDesc("container_memory_total_inactive_file_bytes", "Current total inactive file in bytes.", ofScrape, nil), "memory.stat inactive_file", whole, gauge},
		{prometheus.NewDesc("container_memory_max_usage_bytes", "Maximum memory usage recorded in bytes", ofScrape, nil), "memory.peak", whole, gauge},
		{prometheus.NewDesc("container_spec_memory_swap_limit_bytes", "Memory swap limit for the container.", ofScrape, nil), "memory.swap.max", whole, gauge},
		{prometheus.NewDesc("container_oom_events_total", "Count of out of memory events observed for the container", ofScrape, nil), "memory.events oom_kill", whole, count},
		{prometheus.NewDesc("container_threads", "Number of threads running inside the container", ofScrape, nil), "pids.current", whole, gauge},
		{prometheus.NewDesc("container_threads_max", "Maximum number of threads allowed inside the container", ofScrape, nil), "pids.max", whole, gauge},
		{prometheus.NewDesc("container_pressure_cpu_waiting_seconds_total", "Total time duration tasks in the container have waited due to CPU congestion.", ofScrape, nil), "cpu.pressure some total", micro, count},
		{prometheus.NewDesc("container_pressure_cpu_stalled_seconds_total", "Total time duration no tasks in the container could make progress due to CPU congestion.", ofScrape, nil), "cpu.pressure full total", micro, count},
		{prometheus.NewDesc("container_pressure_memory_waiting_seconds_total", "Total time duration tasks in the container have waited due to memory congestion.", ofScrape, nil), "memory.pressure some total", micro, count},
		{prometheus.NewDesc("container_pressure_memory_stalled_seconds_total", "Total time duration no tasks in the container could make progress due to memory congestion.", ofScrape, nil), "memory.pressure full total", micro, count},
		{prometheus.NewDesc("container_pressure_io_waiting_seconds_total", "Total time duration tasks in the container have waited due to IO congestion.", ofScrape, nil), "io.pressure some total", micro, count},
		{prometheus.NewDesc("container_pressure_io_stalled_seconds_total", "Total time duration no tasks in the container could make progress due to IO congestion.", ofScrape, nil), "io.pressure full total", micro, count},
	}
	ofQuota = []counter{
		{prometheus.NewDesc("container_spec_cpu_quota", "CPU quota of the container.", ofScrape, nil), "cpu.max quota", whole, gauge},
		{prometheus.NewDesc("container_cpu_cfs_periods_total", "Number of elapsed enforcement period intervals.", ofScrape, nil), "cpu.stat nr_periods", whole, count},
		{prometheus.NewDesc("container_cpu_cfs_throttled_periods_total", "Number of throttled period intervals.", ofScrape, nil), "cpu.stat nr_throttled", whole, count},
		{prometheus.NewDesc("container_cpu_cfs_throttled_seconds_total", "Total time duration the container has been throttled.", ofScrape, nil), "cpu.stat throttled_usec", micro, count},
	}
	ofDevice = []counter{
		{prometheus.NewDesc("container_fs_reads_total", "Cumulative count of reads completed", append([]string{"device"}, ofScrape...), nil), "rios", whole, count},
		{prometheus.NewDesc("container_fs_reads_bytes_total", "Cumulative count of bytes read", append([]string{"device"}, ofScrape...), nil), "rbytes", whole, count},
		{prometheus.NewDesc("container_fs_writes_total", "Cumulative count of writes completed", append([]string{"device"}, ofScrape...), nil), "wios", whole, count},
		{prometheus.NewDesc("container_fs_writes_bytes_total", "Cumulative count of bytes written", append([]string{"device"}, ofScrape...), nil), "wbytes", whole, count},
	}
	memoryFailures = prometheus.NewDesc("container_memory_failures_total", "Cumulative count of memory allocation failures.", append([]string{"failure_type", "scope"}, ofScrape...), nil)
	memoryLimit    = prometheus.NewDesc("container_spec_memory_limit_bytes", "Memory limit for the container.", ofScrape, nil)
	memoryKept     = prometheus.NewDesc("container_spec_memory_reservation_limit_bytes", "Memory reservation limit for the container.", ofScrape, nil)
)

// tell tells what the kernel counts for a cgroup.
func tell(ch chan<- prometheus.Metric, v cgroup.Values, labels []string) {
	if len(v) == 0 {
		return
	}
	one := func(c *counter, key string, labels ...string) {
		if n, ok := v[key]; ok {
			ch <- prometheus.MustNewConstMetric(c.desc, c.kind, float64(n)*c.unit, labels...)
		}
	}
	for i := range ofCgroup {
		one(&ofCgroup[i], ofCgroup[i].key, labels...)
	}
	if _, limited := v["cpu.max quota"]; limited {
		for i := range ofQuota {
			one(&ofQuota[i], ofQuota[i].key, labels...)
		}
	}
	ch <- prometheus.MustNewConstMetric(memoryLimit, gauge, float64(v["memory.max"]), labels...) // 0: none
	ch <- prometheus.MustNewConstMetric(memoryKept, gauge, float64(v["memory.low"]), labels...)
	for _, kind := range []string{"pgfault", "pgmajfault"} {
		if n, ok := v["memory.stat "+kind]; ok {
			for _, scope := range []string{"container", "hierarchy"} { // what is below it counts for it
				ch <- prometheus.MustNewConstMetric(memoryFailures, count, float64(n), append([]string{kind, scope}, labels...)...)
			}
		}
	}
	for key := range v {
		number, ok := strings.CutSuffix(key, " "+ofDevice[0].key)
		if !ok {
			continue
		}
		device := append([]string{machine.BlockDevice(strings.TrimPrefix(number, "io.stat "))}, labels...)
		for i := range ofDevice {
			one(&ofDevice[i], number+" "+ofDevice[i].key, device...)
		}
	}
}

// traffic is a metric of a link.
type traffic struct {
	desc *prometheus.Desc
	of   func(*machine.Interface) uint64
}

var ofInterface = []traffic{
	{prometheus.NewDesc("container_network_receive_bytes_total", "Cumulative count of bytes received", append([]string{"interface"}, ofScrape...), nil), func(i *machine.Interface) uint64 { return i.Received.Bytes }},
	{prometheus.NewDesc("container_network_receive_packets_total", "Cumulative count of packets received", append([]string{"interface"}, ofScrape...), nil), func(i *machine.Interface) uint64 { return i.Received.Packets }},
	{prometheus.NewDesc("container_network_receive_packets_dropped_total", "Cumulative count of packets dropped while receiving", append([]string{"interface"}, ofScrape...), nil), func(i *machine.Interface) uint64 { return i.Received.Dropped }},
	{prometheus.NewDesc("container_network_receive_errors_total", "Cumulative count of errors encountered while receiving", append([]string{"interface"}, ofScrape...), nil), func(i *machine.Interface) uint64 { return i.Received.Errors }},
	{prometheus.NewDesc("container_network_transmit_bytes_total", "Cumulative count of bytes transmitted", append([]string{"interface"}, ofScrape...), nil), func(i *machine.Interface) uint64 { return i.Sent.Bytes }},
	{prometheus.NewDesc("container_network_transmit_packets_total", "Cumulative count of packets transmitted", append([]string{"interface"}, ofScrape...), nil), func(i *machine.Interface) uint64 { return i.Sent.Packets }},
	{prometheus.NewDesc("container_network_transmit_packets_dropped_total", "Cumulative count of packets dropped while transmitting", append([]string{"interface"}, ofScrape...), nil), func(i *machine.Interface) uint64 { return i.Sent.Dropped }},
	{prometheus.NewDesc("container_network_transmit_errors_total", "Cumulative count of errors encountered while transmitting", append([]string{"interface"}, ofScrape...), nil), func(i *machine.Interface) uint64 { return i.Sent.Errors }},
}

func tellTraffic(ch chan<- prometheus.Metric, list []machine.Interface, labels []string) {
	for i := range list {
		with := append([]string{list[i].Name}, labels...)
		for _, t := range ofInterface {
			ch <- prometheus.MustNewConstMetric(t.desc, count, float64(t.of(&list[i])), with...)
		}
	}
}
