package usage

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kemudi/kemudi/internal/kubelet/cgroup"
	"github.com/kemudi/kemudi/internal/kubelet/cri"
	"github.com/kemudi/kemudi/internal/kubelet/machine"
)

// Summary is what the node, its pods and their containers use.
func (s *Snapshot) Summary(node string) stats.Summary {
	began := map[string]time.Time{}
	for _, c := range s.Containers {
		began[c.Id] = time.Unix(0, c.CreatedAt)
	}
	known := map[string]*Pod{}
	for i := range s.Pods {
		known[s.Pods[i].UID] = &s.Pods[i]
	}
	pods, values := map[string]*stats.PodStats{}, map[string]cgroup.Values{}
	var order []string
	for _, st := range s.Stats {
		labels := st.GetAttributes().GetLabels()
		uid := labels[cri.LabelPodUID]
		if uid == "" {
			continue
		}
		p := pods[uid]
		if p == nil {
			p = &stats.PodStats{PodRef: stats.PodReference{Name: labels[cri.LabelPodName], Namespace: labels[cri.LabelPodNamespace], UID: uid}}
			if k := known[uid]; k != nil {
				values[uid] = s.addPod(p, k)
			}
			pods[uid] = p
			order = append(order, uid)
		}
		c := s.containerStats(st)
		c.StartTime = metav1.NewTime(began[st.GetAttributes().GetId()])
		if v := values[uid]; pressureOn(v, "cpu.pressure") != nil { // those of containers are told, too
			c.IO = addPressure(s.Read(known[uid].Cgroup+"/"+st.GetAttributes().GetId()), c.CPU, c.Memory, metav1.NewTime(s.Now))
		}
		p.Containers = append(p.Containers, c)
		p.CPU, p.Memory, p.Swap = addCPU(p.CPU, c.CPU), addMemory(p.Memory, c.Memory), addSwap(p.Swap, c.Swap)
	}
	out := stats.Summary{Node: stats.NodeStats{NodeName: node}, Pods: []stats.PodStats{}}
	for _, uid := range order {
		pods[uid].IO = addPressure(values[uid], pods[uid].CPU, pods[uid].Memory, metav1.NewTime(s.Now))
		if m := pods[uid].Memory; m != nil {
			m.AvailableBytes = left(values[uid], m.WorkingSetBytes)
		}
		out.Pods = append(out.Pods, *pods[uid])
		if s.Node == nil {
			out.Node.CPU, out.Node.Memory = addCPU(out.Node.CPU, pods[uid].CPU), addMemory(out.Node.Memory, pods[uid].Memory)
		}
	}
	if s.Node != nil {
		s.Node.add(&out.Node, metav1.NewTime(s.Now))
		all := s.Read("/")
		out.Node.Memory.PageFaults, out.Node.Memory.MajorPageFaults = counted(all, "memory.stat pgfault"), counted(all, "memory.stat pgmajfault")
		out.Node.IO = addPressure(all, out.Node.CPU, out.Node.Memory, metav1.NewTime(s.Now))
		out.Node.SystemContainers = s.podsTogether(out.Pods)
	}
	return out
}

// podsTogether is what all pods use together, as the kernel counts it for them. The agent and the runtime are one process and have
// no cgroups of which the same could be told.
func (s *Snapshot) podsTogether(pods []stats.PodStats) []stats.ContainerStats {
	if s.PodsCgroup == "" {
		return nil
	}
	v := s.Read(s.PodsCgroup)
	if len(v) == 0 {
		return nil
	}
	now := metav1.NewTime(s.Now)
	out := stats.ContainerStats{
		Name: stats.SystemContainerPods, StartTime: metav1.NewTime(s.Node.Used.Booted),
		CPU:    &stats.CPUStats{Time: now, UsageCoreNanoSeconds: counted(v, "cpu.stat usage_usec")},
		Memory: &stats.MemoryStats{Time: now, UsageBytes: counted(v, "memory.current"), RSSBytes: counted(v, "memory.stat anon")},
		Swap:   &stats.SwapStats{Time: now, SwapUsageBytes: counted(v, "memory.swap.current")},
	}
	if n := out.CPU.UsageCoreNanoSeconds; n != nil {
		*n *= 1000
	}
	for i := range pods {
		if c := pods[i].CPU; c != nil {
			out.CPU.UsageNanoCores = add(out.CPU.UsageNanoCores, c.UsageNanoCores)
		}
	}
	if working, ok := v.WorkingSet(); ok {
		out.Memory.WorkingSetBytes = &working
	}
	out.Memory.AvailableBytes = left(v, out.Memory.WorkingSetBytes)
	out.Memory.PageFaults, out.Memory.MajorPageFaults = counted(v, "memory.stat pgfault"), counted(v, "memory.stat pgmajfault")
	out.IO = addPressure(v, out.CPU, out.Memory, now)
	return []stats.ContainerStats{out}
}

// counted is a number of a cgroup; nil: the kernel does not tell it.
func counted(v cgroup.Values, key string) *uint64 {
	n, ok := v[key]
	if !ok {
		return nil
	}
	return &n
}

// left is how much more memory a cgroup may have that holds some already; nil: it is not limited.
func left(v cgroup.Values, working *uint64) *uint64 {
	n := counted(v, "memory.max")
	if n == nil || working == nil {
		return nil
	}
	*n -= min(*n, *working)
	return n
}

// addPod adds what is known of a pod as a whole, and returns what the kernel counts for it.
func (s *Snapshot) addPod(p *stats.PodStats, of *Pod) cgroup.Values {
	p.StartTime = metav1.NewTime(of.Started)
	p.Network = network(of.Interfaces, "eth0", metav1.NewTime(s.Now))
	if of.Cgroup == "" {
		return nil
	}
	v := s.Read(of.Cgroup)
	if n, ok := v["pids.current"]; ok {
		p.ProcessStats = &stats.ProcessStats{ProcessCount: &n}
	}
	return v
}

// add adds what is known of the machine.
func (n *Node) add(out *stats.NodeStats, now metav1.Time) {
	u := &n.Used
	out.StartTime = metav1.NewTime(u.Booted)
	out.CPU = &stats.CPUStats{Time: metav1.NewTime(u.At), UsageCoreNanoSeconds: number(u.CPU * 1e9)}
	if n.Before != nil && u.At.After(n.Before.At) && u.CPU >= n.Before.CPU {
		out.CPU.UsageNanoCores = number((u.CPU - n.Before.CPU) * 1e9 / u.At.Sub(n.Before.At).Seconds())
	}
	out.Memory = &stats.MemoryStats{
		Time: metav1.NewTime(u.At), AvailableBytes: number(u.Available), UsageBytes: number(u.Memory + u.Available - u.Free),
		WorkingSetBytes: number(u.Memory), RSSBytes: number(u.Anonymous),
	}
	out.Swap = &stats.SwapStats{Time: metav1.NewTime(u.At), SwapAvailableBytes: number(u.SwapFree), SwapUsageBytes: number(u.SwapTotal - u.SwapFree)}
	out.Network = network(n.Interfaces, n.Default, now)
	out.Fs = fileSystem(&n.Disk, now)
	out.Runtime = &stats.RuntimeStats{ImageFs: fileSystem(&n.Images, now), ContainerFs: fileSystem(&n.Layers, now)}
	if used := n.ImagesUsed; used != nil { // by images, of all that is on that file system
		out.Runtime.ImageFs.UsedBytes, out.Runtime.ImageFs.InodesUsed = value(used.UsedBytes), value(used.InodesUsed)
	}
	if used := n.LayersUsed; used != nil {
		out.Runtime.ContainerFs.UsedBytes, out.Runtime.ContainerFs.InodesUsed = value(used.UsedBytes), value(used.InodesUsed)
	}
	out.Rlimit = &stats.RlimitStats{Time: now, MaxPID: &n.MostOfThem, NumOfRunningProcesses: &n.Processes}
}

// number is a measure that is never negative.
func number(v float64) *uint64 {
	n := uint64(max(v, 0))
	return &n
}

func fileSystem(fs *machine.FileSystem, now metav1.Time) *stats.FsStats {
	out := &stats.FsStats{Time: now, AvailableBytes: number(float64(fs.Available)), CapacityBytes: number(float64(fs.Capacity)), UsedBytes: number(float64(fs.Used))}
	if fs.Inodes > 0 {
		out.Inodes, out.InodesFree, out.InodesUsed = number(float64(fs.Inodes)), number(float64(fs.InodesFree)), number(float64(fs.Inodes-fs.InodesFree))
	}
	return out
}

// network is what has passed links, of which one is the way to others.
func network(list []machine.Interface, way string, now metav1.Time) *stats.NetworkStats {
	if len(list) == 0 {
		return nil
	}
	out := &stats.NetworkStats{Time: now}
	for i := range list {
		l := &list[i]
		one := stats.InterfaceStats{Name: l.Name, RxBytes: &l.Received.Bytes, RxErrors: &l.Received.Errors, TxBytes: &l.Sent.Bytes, TxErrors: &l.Sent.Errors}
		out.Interfaces = append(out.Interfaces, one)
		if l.Name == way {
			out.InterfaceStats = one
		}
	}
	return out
}

func value(v *runtimeapi.UInt64Value) *uint64 {
	if v == nil {
		return nil
	}
	return &v.Value
}

func (s *Snapshot) containerStats(st *runtimeapi.ContainerStats) stats.ContainerStats {
	out := stats.ContainerStats{Name: st.GetAttributes().GetMetadata().GetName()}
	if c := st.Cpu; c != nil {
		out.CPU = &stats.CPUStats{Time: metav1.NewTime(time.Unix(0, c.Timestamp)), UsageNanoCores: value(c.UsageNanoCores), UsageCoreNanoSeconds: value(c.UsageCoreNanoSeconds)}
	}
	if m := st.Memory; m != nil {
		out.Memory = &stats.MemoryStats{
			Time: metav1.NewTime(time.Unix(0, m.Timestamp)), AvailableBytes: value(m.AvailableBytes), UsageBytes: value(m.UsageBytes),
			WorkingSetBytes: value(m.WorkingSetBytes), RSSBytes: value(m.RssBytes), PageFaults: value(m.PageFaults), MajorPageFaults: value(m.MajorPageFaults),
		}
	}
	if w := st.Swap; w != nil {
		out.Swap = &stats.SwapStats{Time: metav1.NewTime(time.Unix(0, w.Timestamp)), SwapAvailableBytes: value(w.SwapAvailableBytes), SwapUsageBytes: value(w.SwapUsageBytes)}
	}
	if f := st.WritableLayer; f != nil {
		out.Rootfs = &stats.FsStats{}
		if s.Node != nil {
			out.Rootfs = fileSystem(&s.Node.Layers, metav1.Time{})
		}
		out.Rootfs.Time, out.Rootfs.UsedBytes, out.Rootfs.InodesUsed = metav1.NewTime(time.Unix(0, f.Timestamp)), value(f.UsedBytes), value(f.InodesUsed)
	}
	return out
}

func addCPU(sum, c *stats.CPUStats) *stats.CPUStats {
	if c == nil {
		return sum
	}
	if sum == nil {
		sum = &stats.CPUStats{Time: c.Time}
	}
	sum.UsageNanoCores, sum.UsageCoreNanoSeconds = add(sum.UsageNanoCores, c.UsageNanoCores), add(sum.UsageCoreNanoSeconds, c.UsageCoreNanoSeconds)
	return sum
}

func addMemory(sum, m *stats.MemoryStats) *stats.MemoryStats {
	if m == nil {
		return sum
	}
	if sum == nil {
		sum = &stats.MemoryStats{Time: m.Time}
	}
	sum.UsageBytes, sum.WorkingSetBytes, sum.RSSBytes = add(sum.UsageBytes, m.UsageBytes), add(sum.WorkingSetBytes, m.WorkingSetBytes), add(sum.RSSBytes, m.RSSBytes)
	sum.PageFaults, sum.MajorPageFaults = add(sum.PageFaults, m.PageFaults), add(sum.MajorPageFaults, m.MajorPageFaults)
	return sum
}

func addSwap(sum, w *stats.SwapStats) *stats.SwapStats {
	if w == nil {
		return sum
	}
	if sum == nil {
		sum = &stats.SwapStats{Time: w.Time}
	}
	sum.SwapUsageBytes = add(sum.SwapUsageBytes, w.SwapUsageBytes)
	return sum
}

func add(a, b *uint64) *uint64 {
	if a == nil || b == nil {
		if a == nil {
			return b
		}
		return a
	}
	sum := *a + *b
	return &sum
}
