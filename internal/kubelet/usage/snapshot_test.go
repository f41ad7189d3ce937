package usage

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/kubelet/cgroup"
	"github.com/kemudi/kemudi/internal/kubelet/cri"
	"github.com/kemudi/kemudi/internal/kubelet/machine"
)

// text is what a collector is told of, as it is served.
func text(t *testing.T, c prometheus.Collector) string {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(c)
	w := httptest.NewRecorder()
	promhttp.HandlerFor(reg, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("got %d %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// look is of a pod that has one container, which may use half a CPU.
func look() *Snapshot {
	labels := map[string]string{cri.LabelPodUID: "u1", cri.LabelPodName: "web", cri.LabelPodNamespace: "shop"}
	number := func(n uint64) *runtimeapi.UInt64Value { return &runtimeapi.UInt64Value{Value: n} }
	now := time.Unix(1000, 0)
	return &Snapshot{
		Stats: []*runtimeapi.ContainerStats{{
			Attributes:    &runtimeapi.ContainerAttributes{Id: "c1", Labels: labels, Metadata: &runtimeapi.ContainerMetadata{Name: "main"}},
			Cpu:           &runtimeapi.CpuUsage{Timestamp: now.UnixNano(), UsageCoreNanoSeconds: number(5e9)},
			Memory:        &runtimeapi.MemoryUsage{Timestamp: now.UnixNano(), WorkingSetBytes: number(100), PageFaults: number(12)},
			Swap:          &runtimeapi.SwapUsage{Timestamp: now.UnixNano(), SwapUsageBytes: number(3), SwapAvailableBytes: number(4)},
			WritableLayer: &runtimeapi.FilesystemUsage{Timestamp: now.UnixNano(), UsedBytes: number(77)},
		}},
		Containers: []*runtimeapi.Container{{Id: "c1", CreatedAt: 900e9, Image: &runtimeapi.ImageSpec{Image: "nginx"}}},
		Pods: []Pod{{
			UID: "u1", Namespace: "shop", Name: "web", Cgroup: "/pods/podu1", Started: time.Unix(890, 0),
			Interfaces: []machine.Interface{{Name: "eth0", Received: machine.Traffic{Bytes: 11, Packets: 12, Errors: 13, Dropped: 14}, Sent: machine.Traffic{Bytes: 21}}},
		}},
		Capacity:   v1.ResourceList{v1.ResourceCPU: resource.MustParse("4"), v1.ResourceMemory: resource.MustParse("1Ki")},
		Now:        now,
		PodsCgroup: "/pods",
		Read: func(path string) cgroup.Values {
			return map[string]cgroup.Values{
				"/pods/podu1": {"cpu.stat usage_usec": 6e6, "memory.current": 500, "memory.stat inactive_file": 100, "pids.current": 7,
					"cpu.pressure some total": 5, "io.pressure some total": 6, "io.pressure full total": 3, "io.pressure full avg60": 150},
				"/":     {"cpu.pressure some avg10": 1200, "cpu.pressure some total": 8, "memory.stat pgfault": 90, "memory.stat pgmajfault": 3},
				"/pods": {"cpu.stat usage_usec": 8e6, "memory.current": 700, "memory.stat inactive_file": 50, "memory.max": 1000, "memory.stat pgfault": 66},
				"/pods/podu1/c1": {
					"cpu.stat nr_throttled": 9, "cpu.stat throttled_usec": 2e6, "cpu.max quota": 50000, "memory.max": 1 << 20, "memory.stat pgmajfault": 5,
					"io.stat 1:99999 rbytes": 30, "io.stat 1:99999 rios": 2, "memory.events oom_kill": 1, "memory.pressure some total": 4e6,
					"cpu.shares": 512, "cgroup.procs": 3, "memory.events max": 4, "memory.low": 2048,
				},
			}[path]
		},
		Node: &Node{
			Info:   machine.Info{BootID: "b", MachineID: "m", SystemUUID: "s"},
			Used:   machine.Usage{CPU: 60, Memory: 600, Available: 400, Free: 100, Anonymous: 50, SwapTotal: 30, SwapFree: 10, At: now, Booted: time.Unix(10, 0)},
			Before: &machine.Usage{CPU: 40, At: now.Add(-10 * time.Second)}, Interfaces: []machine.Interface{{Name: "ens1", Sent: machine.Traffic{Bytes: 31}}}, Default: "ens1",
			Disk: machine.FileSystem{Capacity: 9000, Available: 4000, Used: 5000, Inodes: 10, InodesFree: 6}, Images: machine.FileSystem{Capacity: 8000}, Layers: machine.FileSystem{Capacity: 7000},
			LayersUsed: &runtimeapi.FilesystemUsage{UsedBytes: number(77)},
			ImagesUsed: &runtimeapi.FilesystemUsage{UsedBytes: number(123)}, Processes: 70, MostOfThem: 700,
		},
	}
}

func TestDashboardsFindWhatTheyReadOfContainers(t *testing.T) {
	t.Parallel()
	got := text(t, look())
	const c = `container="main",id="/pods/podu1/c1",image="nginx",name="c1",namespace="shop",pod="web"}`
	const p = `container="",id="/pods/podu1",image="",name="",namespace="shop",pod="web"}`
	const node = `container="",id="/",image="",name="",namespace="",pod=""}`
	for _, want := range []string{
		`machine_cpu_cores{boot_id="b",machine_id="m",system_uuid="s"} 4`, `machine_swap_bytes{boot_id="b",machine_id="m",system_uuid="s"} 30`,
		"container_cpu_cfs_throttled_periods_total{" + c + " 9", "container_cpu_cfs_throttled_seconds_total{" + c + " 2", "container_spec_cpu_quota{" + c + " 50000",
		"container_spec_memory_limit_bytes{" + c + " 1.048576e+06", `container_memory_failures_total{` + `container="main",failure_type="pgmajfault",id="/pods/podu1/c1",image="nginx",name="c1",namespace="shop",pod="web",scope="hierarchy"} 5`,
		`container_fs_reads_bytes_total{container="main",device="1:99999",id="/pods/podu1/c1",image="nginx",name="c1",namespace="shop",pod="web"} 30`,
		"container_spec_cpu_shares{" + c + " 512", "container_processes{" + c + " 3", "container_memory_failcnt{" + c + " 4",
		"container_spec_memory_reservation_limit_bytes{" + c + " 2048", "container_spec_memory_reservation_limit_bytes{" + p + " 0",
		"container_oom_events_total{" + c + " 1", "container_pressure_memory_waiting_seconds_total{" + c + " 4", "container_memory_swap{" + c + " 3 1000000",
		`container_fs_limit_bytes{container="main",device="",id="/pods/podu1/c1",image="nginx",name="c1",namespace="shop",pod="web"} 7000`,
		`container_network_receive_bytes_total{container="",id="/pods/podu1",image="",interface="eth0",name="",namespace="shop",pod="web"} 11`,
		`container_network_receive_packets_dropped_total{container="",id="/pods/podu1",image="",interface="eth0",name="",namespace="shop",pod="web"} 14`,
		`container_network_transmit_bytes_total{container="",id="/",image="",interface="ens1",name="",namespace="",pod=""} 31`,
		"container_memory_working_set_bytes{" + p + " 400", "container_threads{" + p + " 7", "container_spec_memory_limit_bytes{" + p + " 0",
		"container_memory_working_set_bytes{" + node + " 600", "container_memory_rss{" + node + " 50", "container_start_time_seconds{" + node + " 10",
	} {
		if !strings.Contains(got, want+"\n") {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
	if strings.Contains(got, "container_spec_cpu_quota{"+p) {
		t.Error("a pod without a limit of CPUs has a quota")
	}
}

func TestSummaryIsOfTheMachineAsWellAsOfPods(t *testing.T) {
	t.Parallel()
	s := look().Summary("n1")
	n := s.Node
	for what, is := range map[string][2]uint64{
		"CPU": {*n.CPU.UsageCoreNanoSeconds, 60e9}, "CPU now": {*n.CPU.UsageNanoCores, 2e9}, "memory": {*n.Memory.WorkingSetBytes, 600}, "memory used": {*n.Memory.UsageBytes, 900},
		"memory available": {*n.Memory.AvailableBytes, 400}, "swap": {*n.Swap.SwapUsageBytes, 20}, "sent": {*n.Network.TxBytes, 31}, "disk": {*n.Fs.UsedBytes, 5000},
		"inodes": {*n.Fs.InodesUsed, 4}, "images": {*n.Runtime.ImageFs.UsedBytes, 123}, "disk of images": {*n.Runtime.ImageFs.CapacityBytes, 8000}, "disk of layers": {*n.Runtime.ContainerFs.CapacityBytes, 7000}, "layers": {*n.Runtime.ContainerFs.UsedBytes, 77},
		"processes": {uint64(*n.Rlimit.NumOfRunningProcesses), 70}, "most processes": {uint64(*n.Rlimit.MaxPID), 700}, "boot": {uint64(n.StartTime.Unix()), 10},
	} {
		if is[0] != is[1] {
			t.Errorf("%s of the node: got %d, want %d", what, is[0], is[1])
		}
	}
	if len(s.Pods) != 1 || len(s.Pods[0].Containers) != 1 || len(n.SystemContainers) != 1 || n.SystemContainers[0].Name != "pods" {
		t.Fatalf("got pods %+v, system containers %+v", s.Pods, n.SystemContainers)
	}
	all := n.SystemContainers[0]
	for what, is := range map[string][2]uint64{
		"CPU": {*all.CPU.UsageCoreNanoSeconds, 8e9}, "memory": {*all.Memory.WorkingSetBytes, 650}, "memory available": {*all.Memory.AvailableBytes, 350},
		"page faults": {*all.Memory.PageFaults, 66}, "page faults of the node": {*n.Memory.PageFaults, 90}, "major page faults of the node": {*n.Memory.MajorPageFaults, 3},
		"page faults of a pod": {*s.Pods[0].Memory.PageFaults, 12},
	} {
		if is[0] != is[1] {
			t.Errorf("%s, of all pods together: got %d, want %d", what, is[0], is[1])
		}
	}
	if all.Memory.RSSBytes != nil || s.Pods[0].Memory.AvailableBytes != nil {
		t.Errorf("what is not counted, or not limited: got %+v, %+v", all.Memory, s.Pods[0].Memory)
	}
	p, c := s.Pods[0], s.Pods[0].Containers[0]
	for what, is := range map[string][2]uint64{
		"received": {*p.Network.RxBytes, 11}, "errors": {*p.Network.RxErrors, 13}, "processes": {*p.ProcessStats.ProcessCount, 7}, "swap": {*p.Swap.SwapUsageBytes, 3},
		"start": {uint64(p.StartTime.Unix()), 890}, "start of container": {uint64(c.StartTime.Unix()), 900}, "writable layer": {*c.Rootfs.UsedBytes, 77}, "of": {*c.Rootfs.CapacityBytes, 7000},
	} {
		if is[0] != is[1] {
			t.Errorf("%s of the pod: got %d, want %d", what, is[0], is[1])
		}
	}
	if got := p.IO.PSI.Full; got.Total != 3000 || got.Avg60 != 1.5 || p.CPU.PSI.Some.Total != 5000 || p.Memory.PSI != nil {
		t.Errorf("pressure on the pod: got %+v, %+v, %+v", got, p.CPU.PSI, p.Memory.PSI)
	}
	if c.Memory.PSI.Some.Total != 4e9 || c.CPU.PSI != nil || c.IO != nil || n.CPU.PSI.Some.Avg10 != 12 || n.IO != nil {
		t.Errorf("pressure on the container and the node: got %+v, %+v", c.Memory.PSI, n.CPU.PSI)
	}
}

func TestMetricsServerFindsSwapAndStart(t *testing.T) {
	t.Parallel()
	s := look()
	got := text(t, &Look{Containers: s.Stats, There: s.Containers, Node: &s.Node.Used})
	for _, want := range []string{
		`container_start_time_seconds{container="main",namespace="shop",pod="web"} 900`, `container_swap_usage_bytes{container="main",namespace="shop",pod="web"} 3 1000000`,
		`container_swap_limit_bytes{container="main",namespace="shop",pod="web"} 7 1000000`, `pod_swap_usage_bytes{namespace="shop",pod="web"} 3 1000000`, `node_swap_usage_bytes 20 1000000`,
		"resource_scrape_error 0",
	} {
		if !strings.Contains(got, want+"\n") {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
}

func TestLocalStorageOfAPodIsLogsLayersAndLocalVolumes(t *testing.T) {
	t.Parallel()
	s, at, disk := look().Summary("n1"), time.Unix(990, 0), machine.FileSystem{Capacity: 9000, Available: 8000, Inodes: 9, InodesFree: 8}
	volumes := []Volume{
		{Pod: "u1", Name: "work", Local: true, Held: HeldFiles(&disk, machine.Files{Bytes: 1000, Inodes: 3}, at)},
		{Pod: "u1", Name: "secret", Held: HeldFiles(&disk, machine.Files{Bytes: 50, Inodes: 4}, at)},
		{Pod: "gone", Name: "work", Local: true, Held: HeldFiles(&disk, machine.Files{Bytes: 1}, at)},
	}
	AddVolumes(&s, volumes)
	AddStored(&s, map[string]Stored{"u1": {At: at, Disk: &disk, Logs: map[string]machine.Files{"main": {Bytes: 300, Inodes: 2}, "init": {Bytes: 9, Inodes: 1}}, Other: machine.Files{Bytes: 10, Inodes: 1}}}, volumes)
	p := s.Pods[0]
	if got := *p.EphemeralStorage; *got.UsedBytes != 1000+300+10+77 || *got.InodesUsed != 3+2+1 || *got.CapacityBytes != 9000 || *got.InodesFree != 8 || got.Time.Unix() != 1000 {
		t.Errorf("got %d bytes in %d inodes, %+v", *got.UsedBytes, *got.InodesUsed, got)
	}
	if logs := p.Containers[0].Logs; *logs.UsedBytes != 300 || *logs.InodesUsed != 2 || *logs.AvailableBytes != 8000 {
		t.Errorf("logs: got %+v", logs)
	}
	if len(p.VolumeStats) != 2 || *p.VolumeStats[1].UsedBytes != 50 {
		t.Errorf("volumes: got %+v", p.VolumeStats)
	}
}
