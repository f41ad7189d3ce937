package podautoscaler

import (
	"errors"
	"fmt"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"

	"github.com/kemudi/kemudi/internal/api/core"
)

// usage is what a metric says of one pod, in thousandths.
type usage struct {
	value  int64
	at     time.Time
	window time.Duration
}

// tolerance is how far the ratio of what is used to what is wanted may be off, below and
// above 1, with nothing done about it.
type tolerance struct{ down, up float64 }

// within reports whether the ratio is as good as 1.
func (t tolerance) within(ratio float64) bool { return 1-t.down <= ratio && ratio <= 1+t.up }

// readiness is how long pods that start are not taken at their word.
type readiness struct {
	cpuInitialization time.Duration // the processor time of a pod that starts is not that of its work
	initialDelay      time.Duration // a pod that gets ready is ready for the first time
}

// group is what the pods of a target are to a metric.
type group struct {
	ready    int             // count
	unready  map[string]bool // they are there, but what they use says nothing yet
	missing  map[string]bool // nothing is known of them
	measures map[string]usage
}

// groupPods sorts pods by what is known of them. Those that end or have failed do not count.
func groupPods(pods []*corev1.Pod, measured map[string]usage, name corev1.ResourceName, r readiness) group {
	g := group{unready: map[string]bool{}, missing: map[string]bool{}, measures: map[string]usage{}}
	for k, v := range measured {
		g.measures[k] = v
	}
	for _, pod := range pods {
		m, known := measured[pod.Name]
		switch {
		case pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodFailed:
			delete(g.measures, pod.Name)
		case pod.Status.Phase == corev1.PodPending:
			g.unready[pod.Name] = true
		case !known:
			g.missing[pod.Name] = true
		case name == corev1.ResourceCPU && starts(pod, m, r):
			g.unready[pod.Name] = true
		default:
			g.ready++
		}
	}
	for k := range g.unready {
		delete(g.measures, k)
	}
	return g
}

// starts reports whether the processor time of a pod is that of its start.
func starts(pod *corev1.Pod, m usage, r readiness) bool {
	c := core.PodCondition(&pod.Status, corev1.PodReady)
	if c == nil || pod.Status.StartTime == nil {
		return true
	}
	if time.Since(pod.Status.StartTime.Time) < r.cpuInitialization {
		return c.Status == corev1.ConditionFalse || m.at.Before(c.LastTransitionTime.Add(m.window))
	}
	// It has never been ready.
	return c.Status == corev1.ConditionFalse && pod.Status.StartTime.Add(r.initialDelay).After(c.LastTransitionTime.Time)
}

var (
	errNoPods     = errors.New("no pods returned by selector while calculating replica count")
	errNoMeasures = errors.New("did not receive metrics for targeted pods (pods might be unready)")
)

// measured is a metric of pods and what it is held against.
type measured struct {
	pods    []*corev1.Pod
	values  map[string]usage // by name of the pod
	name    corev1.ResourceName
	current int32 // pods wanted now
	tolerance
	readiness
}

// proposal is how many pods a metric wants, and why.
type proposal struct {
	replicas    int32
	utilization int32 // percent, of a share
	value       int64 // the average, or the value itself, in thousandths
}

// byShare is how many pods it takes so that each uses the share, in percent, of what it
// has asked for; container is one of theirs, or empty for the whole pods.
func (m *measured) byShare(percent int32, container string) (proposal, error) {
	if len(m.pods) == 0 {
		return proposal{}, errNoPods
	}
	g := groupPods(m.pods, m.values, m.name, m.readiness)
	requests, err := requestsOf(m.pods, m.name, container)
	if err != nil {
		return proposal{}, err
	}
	if len(g.measures) == 0 {
		return proposal{}, errNoMeasures
	}
	ratio := func() (float64, proposal, error) { return shareRatio(g.measures, requests, percent) }
	full := func(pod string) int64 { return requests[pod] * int64(max(100, percent)) / 100 }
	return m.scale(&g, ratio, full)
}

// byAverage is how many pods it takes so that each has the target of the metric.
func (m *measured) byAverage(target int64) (proposal, error) {
	if len(m.pods) == 0 {
		return proposal{}, errNoPods
	}
	g := groupPods(m.pods, m.values, m.name, m.readiness)
	if len(g.measures) == 0 {
		return proposal{}, errNoMeasures
	}
	ratio := func() (float64, proposal, error) {
		var sum int64
		for _, u := range g.measures {
			sum += u.value
		}
		average := sum / int64(len(g.measures))
		return float64(average) / float64(target), proposal{value: average}, nil
	}
	return m.scale(&g, ratio, func(string) int64 { return target })
}

// scale turns a ratio into a number of pods. Pods that nothing is known of count as if
// they used all they may when there would be fewer pods, full, and nothing when there
// would be more (H2); those that start count as if they used nothing.
func (m *measured) scale(g *group, ratio func() (float64, proposal, error), full func(pod string) int64) (proposal, error) {
	first, p, err := ratio()
	if err != nil {
		return proposal{}, err
	}
	p.replicas = m.current
	startingCounts := len(g.unready) > 0 && first > 1
	if !startingCounts && len(g.missing) == 0 {
		if !m.within(first) {
			p.replicas = ceil(first * float64(g.ready))
		}
		return p, nil
	}
	for pod := range g.missing {
		switch {
		case first < 1:
			g.measures[pod] = usage{value: full(pod)}
		case first > 1:
			g.measures[pod] = usage{}
		}
	}
	if startingCounts {
		for pod := range g.unready {
			g.measures[pod] = usage{}
		}
	}
	second, _, err := ratio()
	if err != nil {
		return proposal{}, err
	}
	if m.within(second) || first < 1 && second > 1 || first > 1 && second < 1 {
		return p, nil
	}
	n := ceil(second * float64(len(g.measures)))
	if second < 1 && n > m.current || second > 1 && n < m.current {
		return p, nil
	}
	p.replicas = n
	return p, nil
}

// ceil is the whole number from n up, as far as there are so many pods.
func ceil(n float64) int32 {
	if n >= math.MaxInt32 {
		return math.MaxInt32
	}
	return int32(math.Ceil(n))
}

// shareRatio is what pods use of what they have asked for, to the share wanted.
func shareRatio(values map[string]usage, requests map[string]int64, percent int32) (float64, proposal, error) {
	var used, asked, n int64
	for pod, u := range values {
		if r, ok := requests[pod]; ok {
			used, asked, n = used+u.value, asked+r, n+1
		}
	}
	if asked == 0 {
		return 0, proposal{}, errors.New("no metrics returned matched known pods")
	}
	share := int32(min(used*100/asked, math.MaxInt32))
	return float64(share) / float64(percent), proposal{utilization: share, value: used / n}, nil
}

// requestsOf is what each pod has asked for of a resource, in thousandths.
func requestsOf(pods []*corev1.Pod, name corev1.ResourceName, container string) (map[string]int64, error) {
	out := make(map[string]int64, len(pods))
	for _, pod := range pods {
		if container == "" && resource.IsPodLevelRequestsSet(pod) {
			if q, ok := pod.Spec.Resources.Requests[name]; ok {
				out[pod.Name] = q.MilliValue()
				continue
			}
		}
		sum := int64(0)
		for c := range running(&pod.Spec) {
			if container != "" && c.Name != container {
				continue
			}
			q, ok := c.Resources.Requests[name]
			if !ok {
				return nil, fmt.Errorf("missing request for %s in container %s of Pod %s", name, c.Name, pod.Name)
			}
			sum += q.MilliValue()
		}
		out[pod.Name] = sum
	}
	return out, nil
}

// running are the containers that run as long as the pod does.
func running(spec *corev1.PodSpec) func(yield func(*corev1.Container) bool) {
	return func(yield func(*corev1.Container) bool) {
		for i := range spec.Containers {
			if !yield(&spec.Containers[i]) {
				return
			}
		}
		for i := range spec.InitContainers {
			c := &spec.InitContainers[i]
			if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways && !yield(c) {
				return
			}
		}
	}
}

// byValue is how many pods a value wants that is shared by all: of an object, or from
// outside. At zero pods it is the number of times that the value has the target.
func (m *measured) byValue(value, target int64) (proposal, error) {
	ratio := float64(value) / float64(target)
	p := proposal{replicas: m.current, value: value}
	if m.current == 0 {
		p.replicas = ceil(ratio)
		return p, nil
	}
	if m.within(ratio) {
		return p, nil
	}
	if len(m.pods) == 0 {
		return proposal{}, fmt.Errorf("unable to calculate ready pods: %w", errNoPods)
	}
	ready := 0
	for _, pod := range m.pods {
		if c := core.PodCondition(&pod.Status, corev1.PodReady); pod.Status.Phase == corev1.PodRunning && c != nil && c.Status == corev1.ConditionTrue {
			ready++
		}
	}
	p.replicas = ceil(ratio * float64(ready))
	return p, nil
}

// byValuePerPod is how many pods it takes so that each has the target of a value that is
// shared by all; there are pods of them.
func (m *measured) byValuePerPod(value, target int64, pods int32) proposal {
	p := proposal{replicas: pods, value: value}
	if pods == 0 || !m.within(float64(value)/(float64(target)*float64(pods))) {
		p.replicas = ceil(float64(value) / float64(target))
	}
	if pods > 0 {
		p.value = int64(math.Ceil(float64(value) / float64(pods)))
	}
	return p
}
