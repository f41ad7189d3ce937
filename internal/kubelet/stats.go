package kubelet

import (
	"context"
	"net/http"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kemudi/kemudi/internal/kubelet/cri"
	"github.com/kemudi/kemudi/internal/kubelet/podstep"
)

// serveSummary answers with what pods and containers use now.
func (a *Agent) serveSummary(w http.ResponseWriter, r *http.Request) {
	resp, err := a.o.Runtime.ListContainerStats(r.Context(), &runtimeapi.ListContainerStatsRequest{})
	if err != nil {
		fail(w, err)
		return
	}
	pods := map[string]*stats.PodStats{}
	var order []string
	for _, s := range resp.Stats {
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
	out := stats.Summary{Node: stats.NodeStats{NodeName: a.o.NodeName}}
	for _, uid := range order {
		out.Pods = append(out.Pods, *pods[uid])
		out.Node.CPU, out.Node.Memory = addCPU(out.Node.CPU, pods[uid].CPU), addMemory(out.Node.Memory, pods[uid].Memory)
	}
	writeJSON(w, out)
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

// metricsHandler serves the agent's own metrics.
func (a *Agent) metricsHandler() http.Handler {
	reg := prometheus.NewRegistry()
	reg.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "kubelet_running_pods", Help: "Number of pods that have a running pod sandbox."},
			func() float64 { pods, _ := a.count(); return float64(pods) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "kubelet_running_containers", Help: "Number of containers currently running."},
			func() float64 { _, containers := a.count(); return float64(containers) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "go_goroutines", Help: "Number of goroutines that currently exist."},
			func() float64 { return float64(runtime.NumGoroutine()) }),
	)
	return promhttp.HandlerFor(reg, promhttp.HandlerOpts{})
}

// count asks every actor for what runs of its pod.
func (a *Agent) count() (pods, containers int) {
	type counts struct{ pods, containers int }
	for _, c := range ask(a, func(x *actor) (c counts) {
		if len(x.o.Sandboxes) > 0 && x.o.Sandboxes[0].Ready {
			c.pods = 1
		}
		for i := range x.o.Containers {
			if x.o.Containers[i].State == podstep.Running {
				c.containers++
			}
		}
		return c
	}) {
		pods, containers = pods+c.pods, containers+c.containers
	}
	return pods, containers
}

// ask has f answered by every actor. Those that are busy for a second, or end
// meanwhile, are left out.
func ask[T any](a *Agent, f func(*actor) T) (out []T) {
	ctx, cancel := context.WithTimeout(a.group.Context(), time.Second)
	defer cancel()
	actors := a.allActors()
	answers := make(chan T, len(actors)) // buffered: an answer may come too late
	for _, act := range actors {
		act.post(func(x *actor) { answers <- f(x) })
	}
	for range actors {
		select {
		case one := <-answers:
			out = append(out, one)
		case <-ctx.Done():
			return out
		}
	}
	return out
}
