package usage

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kemudi/kemudi/internal/kubelet/cri"
)

// Summary is what the pods of a node and their containers use.
func Summary(node string, containers []*runtimeapi.ContainerStats) stats.Summary {
	pods := map[string]*stats.PodStats{}
	var order []string
	for _, s := range containers {
		labels := s.GetAttributes().GetLabels()
		uid := labels[cri.LabelPodUID]
		if uid == "" {
			continue
		}
		p := pods[uid]
		if p == nil {
			p = &stats.PodStats{PodRef: stats.PodReference{Name: labels[cri.LabelPodName], Namespace: labels[cri.LabelPodNamespace], UID: uid}}
			pods[uid] = p
			order = append(order, uid)
		}
		c := containerStats(s)
		p.Containers = append(p.Containers, c)
		p.CPU, p.Memory = addCPU(p.CPU, c.CPU), addMemory(p.Memory, c.Memory)
	}
	out := stats.Summary{Node: stats.NodeStats{NodeName: node}}
	for _, uid := range order {
		out.Pods = append(out.Pods, *pods[uid])
		out.Node.CPU, out.Node.Memory = addCPU(out.Node.CPU, pods[uid].CPU), addMemory(out.Node.Memory, pods[uid].Memory)
	}
	return out
}

func value(v *runtimeapi.UInt64Value) *uint64 {
	if v == nil {
		return nil
	}
	return &v.Value
}

func containerStats(s *runtimeapi.ContainerStats) stats.ContainerStats {
	out := stats.ContainerStats{Name: s.GetAttributes().GetMetadata().GetName()}
	if c := s.Cpu; c != nil {
		out.CPU = &stats.CPUStats{Time: metav1.NewTime(time.Unix(0, c.Timestamp)), UsageNanoCores: value(c.UsageNanoCores), UsageCoreNanoSeconds: value(c.UsageCoreNanoSeconds)}
	}
	if m := s.Memory; m != nil {
		out.Memory = &stats.MemoryStats{
			Time: metav1.NewTime(time.Unix(0, m.Timestamp)), AvailableBytes: value(m.AvailableBytes), UsageBytes: value(m.UsageBytes),
			WorkingSetBytes: value(m.WorkingSetBytes), RSSBytes: value(m.RssBytes), PageFaults: value(m.PageFaults), MajorPageFaults: value(m.MajorPageFaults),
		}
	}
	if f := s.WritableLayer; f != nil {
		out.Rootfs = &stats.FsStats{Time: metav1.NewTime(time.Unix(0, f.Timestamp)), UsedBytes: value(f.UsedBytes), InodesUsed: value(f.InodesUsed)}
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
