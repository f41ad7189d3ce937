package pressure

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/kubelet/cri"
	"github.com/kemudi/kemudi/internal/kubelet/evict"
	"github.com/kemudi/kemudi/internal/kubelet/image"
	"github.com/kemudi/kemudi/internal/kubelet/node"
	"github.com/kemudi/kemudi/internal/kubelet/pod"
	"github.com/kemudi/kemudi/internal/kubelet/podstep"
	"github.com/kemudi/kemudi/internal/task"
)

const (
	// pressureInterval is how often the node is looked at: neither a file system
	// nor, everywhere, the kernel tells that little is left.
	pressureInterval = 10 * time.Second
	// evictionWait is how long the next pod to go waits for the one before at least.
	evictionWait = 30 * time.Second
)

// Watch watches one node.
type Watch struct {
	Thresholds []evict.Threshold
	MaxGrace   int64             // seconds that pods have to end at the most, where they have time for it
	Reclaim    []evict.Threshold // how much more there must be than a threshold, once that has been passed
	Transition time.Duration     // how long a condition stays after its cause has gone
	Gauges     Gauges

	Pods    *pod.Set
	Runtime runtimeapi.RuntimeServiceClient
	Images  *image.Collector
	Node    *node.Node
	Events  client.EventSink
	Log     *slog.Logger
	Evicted *prometheus.CounterVec // of [NewEvictions]
}

// Run keeps the node from running out of memory, disk and processes, after begun is closed.
func (w *Watch) Run(ctx context.Context, begun <-chan struct{}) error {
	select {
	case <-begun:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	m := &evict.Monitor{Thresholds: w.Thresholds, Transition: w.Transition, Reclaim: w.Reclaim}
	for {
		evicted := false
		if starved := w.lookAtNode(ctx, m); len(starved) > 0 {
			evicted = w.relieve(ctx, m, starved[0])
		}
		if evicted { // look again at once: is it enough?
			continue
		}
		if err := task.Sleep(ctx, pressureInterval); err != nil {
			return err
		}
	}
}

// lookAtNode reads the gauges and notes what pressure they show.
func (w *Watch) lookAtNode(ctx context.Context, m *evict.Monitor) []evict.Starved {
	readings, err := w.Gauges.Node(ctx)
	if err != nil {
		if ctx.Err() == nil {
			w.Log.Warn("look at what the node has left", "err", err)
		}
		if readings == nil {
			return nil
		}
	}
	pressure, starved := m.Observe(readings, time.Now())
	w.Node.SetPressure(pressure)
	return starved
}

// relieve makes room: first by what nobody uses, then by ending a pod. It reports
// whether a pod has gone.
func (w *Watch) relieve(ctx context.Context, m *evict.Monitor, s evict.Starved) bool {
	if node, ok := w.Node.Seen(); ok {
		w.Events.Event(node, v1.EventTypeWarning, "EvictionThresholdMet", "Attempting to reclaim "+s.Signal.Resource())
	}
	if s.Signal.Disk() {
		if err := w.Images.RemoveUnused(ctx); err != nil {
			w.Log.Warn("remove unused images", "err", err)
		}
		left := w.lookAtNode(ctx, m)
		if len(left) == 0 {
			return false
		}
		s = left[0]
	}
	users, err := w.users(ctx, s.Signal)
	if err != nil {
		w.Log.Warn("look at what pods use", "err", err)
		return false
	}
	u := evict.Choose(s.Signal, users)
	if u == nil {
		w.Log.Warn("node is low on a resource, and no pod can be evicted", "resource", s.Signal.Resource())
		return false
	}
	w.Evicted.WithLabelValues(string(s.Signal)).Inc()
	e := podstep.Eviction{Grace: new(int64)}
	e.Message, e.Annotations = u.Message(s)
	if s.Soft {
		*e.Grace = min(w.MaxGrace, ptr.Deref(u.Pod.Spec.TerminationGracePeriodSeconds, w.MaxGrace))
	}
	return w.evictPod(ctx, u.Pod.UID, e)
}

// evictPod ends a pod and waits until it has ended, for a while.
func (w *Watch) evictPod(ctx context.Context, uid types.UID, e podstep.Eviction) bool {
	left := w.Pods.Evict(uid, e)
	if left == nil {
		return false
	}
	select {
	case <-left:
		return true
	case <-time.After(max(evictionWait, podstep.Patience(*e.Grace))):
	case <-ctx.Done():
	}
	return false
}

// users are the pods that are not finished, with what they use of a resource.
func (w *Watch) users(ctx context.Context, s evict.Signal) ([]evict.User, error) {
	resp, err := w.Runtime.ListContainerStats(ctx, &runtimeapi.ListContainerStatsRequest{})
	if err != nil {
		return nil, fmt.Errorf("ask what containers use: %w", err)
	}
	memory := map[string]map[string]int64{}
	for _, st := range resp.Stats {
		uid := st.GetAttributes().GetLabels()[cri.LabelPodUID]
		if memory[uid] == nil {
			memory[uid] = map[string]int64{}
		}
		memory[uid][st.GetAttributes().GetMetadata().GetName()] = int64(st.GetMemory().GetWorkingSetBytes().GetValue())
	}
	var out []evict.User
	for _, pod := range w.Pods.Unfinished() {
		u := evict.User{Pod: pod, Used: memory[string(pod.UID)]}
		if s == evict.PIDAvailable {
			n, err := w.Gauges.Processes(pod)
			if err != nil {
				return nil, err
			}
			u.Used, u.Other = nil, n
		}
		if s.Disk() {
			held, err := w.Gauges.Pod(ctx, pod)
			if err != nil {
				return nil, err
			}
			u.Used = held.Containers
			u.Other = held.Total(pod) - evict.User{Used: held.Containers}.Total()
			if s.Inodes() {
				u.Used, u.Other = nil, held.Inodes
			}
		}
		out = append(out, u)
	}
	return out, nil
}
