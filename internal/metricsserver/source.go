package metricsserver

import (
	"context"
	"maps"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/resource"
)

// Nodes makes NodeMetrics, Pods PodMetrics: they are sources of the API server.
type (
	Nodes struct{ S *Server }
	Pods  struct{ S *Server }
)

// One is what a node uses.
func (n Nodes) One(ctx context.Context, _, name string) (resource.Object, error) {
	it := n.S.o.Nodes.Get(name)
	if it == nil {
		return nil, apierrors.NewNotFound(core.Nodes.GroupResource(), name)
	}
	all, err := n.S.nodeMetrics(ctx, []*cache.Item{it})
	if err == nil && len(all) == 0 {
		err = notMeasured("nodemetrics", name)
	}
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// All is what nodes use. Those that cannot be looked at are left out.
func (n Nodes) All(ctx context.Context, _ string, selected labels.Selector) ([]resource.Object, error) {
	return n.S.nodeMetrics(ctx, n.S.o.Nodes.List("", selected))
}

// notMeasured says that nothing is known (yet) of what is there.
func notMeasured(kind, name string) error {
	return apierrors.NewNotFound(schema.GroupResource{Group: metricsv1beta1.GroupName, Resource: kind}, name)
}

func (s *Server) nodeMetrics(ctx context.Context, items []*cache.Item) ([]resource.Object, error) {
	names := make([]string, len(items))
	for i, it := range items {
		names[i] = it.Object.GetName()
	}
	seen := s.lookAt(ctx, names)
	var out []resource.Object
	for i, it := range items {
		l := seen[names[i]]
		if l.last == nil {
			continue
		}
		if used, window, ok := between(l.before.Node, l.last.Node); ok {
			out = append(out, &metricsv1beta1.NodeMetrics{
				ObjectMeta: metav1.ObjectMeta{Name: names[i], Labels: maps.Clone(it.Object.GetLabels()), CreationTimestamp: metav1.Now().Rfc3339Copy()},
				Timestamp:  metav1.NewTime(l.last.Node.At), Window: metav1.Duration{Duration: window}, Usage: used,
			})
		}
	}
	return out, ended(ctx)
}

// ended says why an answer has holes that are none of the nodes.
func ended(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// between is what was used between two looks; ok is false if they do not tell.
func between(before, last Use) (used corev1.ResourceList, window time.Duration, ok bool) {
	window = last.At.Sub(before.At)
	if before.At.IsZero() || window <= 0 || last.CPU < before.CPU {
		return nil, 0, false // the counter has begun anew
	}
	return corev1.ResourceList{
		corev1.ResourceCPU:    *quantity.NewScaledQuantity(int64(math.Round((last.CPU-before.CPU)/window.Seconds()*1e9)), quantity.Nano),
		corev1.ResourceMemory: *quantity.NewQuantity(int64(last.Memory), quantity.BinarySI),
	}, window.Round(time.Millisecond), true
}

// One is what a pod uses.
func (p Pods) One(ctx context.Context, namespace, name string) (resource.Object, error) {
	key := cache.Key(namespace, name)
	it := p.S.o.Pods.Get(key)
	if it == nil {
		return nil, apierrors.NewNotFound(core.Pods.GroupResource(), name)
	}
	all, err := p.S.podMetrics(ctx, []*cache.Item{it})
	if err == nil && len(all) == 0 {
		err = notMeasured("podmetrics", key)
	}
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// All is what pods use. Those whose node cannot be looked at are left out, and those of
// which a container has been seen only once.
func (p Pods) All(ctx context.Context, namespace string, selected labels.Selector) ([]resource.Object, error) {
	return p.S.podMetrics(ctx, p.S.o.Pods.List(namespace, selected))
}

func (s *Server) podMetrics(ctx context.Context, items []*cache.Item) ([]resource.Object, error) {
	items = slices.DeleteFunc(items, func(it *cache.Item) bool {
		pod := it.Object.(*corev1.Pod)
		return pod.Spec.NodeName == "" || core.PodTerminal(pod)
	})
	on := map[string]bool{}
	for _, it := range items {
		on[it.Object.(*corev1.Pod).Spec.NodeName] = true
	}
	seen := s.lookAt(ctx, slices.Collect(maps.Keys(on)))
	var out []resource.Object
	for _, it := range items {
		pod := it.Object.(*corev1.Pod)
		if m := podMetrics(pod, it.Key, seen[pod.Spec.NodeName]); m != nil {
			out = append(out, m)
		}
	}
	return out, ended(ctx)
}

// podMetrics is what a pod used between two looks at its node; nil if they do not tell.
func podMetrics(pod *corev1.Pod, key string, l looks) *metricsv1beta1.PodMetrics {
	if l.last == nil || len(l.last.Pods[key]) == 0 {
		return nil
	}
	m := &metricsv1beta1.PodMetrics{ObjectMeta: metav1.ObjectMeta{
		Name: pod.Name, Namespace: pod.Namespace, Labels: maps.Clone(pod.Labels), CreationTimestamp: metav1.Now().Rfc3339Copy(),
	}}
	now, then := l.last.Pods[key], l.before.Pods[key]
	for _, name := range slices.Sorted(maps.Keys(now)) {
		used, window, ok := between(then[name], now[name])
		if !ok || then[name].At.Before(pod.CreationTimestamp.Time) { // one of the same name before it
			return nil
		}
		m.Containers = append(m.Containers, metricsv1beta1.ContainerMetrics{Name: name, Usage: used})
		if at := now[name].At; m.Timestamp.IsZero() || at.Before(m.Timestamp.Time) {
			m.Timestamp, m.Window = metav1.NewTime(at), metav1.Duration{Duration: window}
		}
	}
	return m
}
