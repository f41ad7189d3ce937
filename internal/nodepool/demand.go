package nodepool

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cache"
)

// demand is what pods ask of pools: which fit nowhere, and which keep machines busy. It is kept up to
// date change by change.
type demand struct {
	waiting map[string]*corev1.Pod // that fit nowhere, by key
	tried   map[string]attempt     // pods for which machines came, by key
	told    map[string]string      // why no machine comes, by key, as it was last said
	onNode  map[string]int         // how many pods that work each node has
	idle    map[string]time.Time   // since when nodes that have had some have none
}

// attempt is how a pod has fared with machines that came for it (N4).
type attempt struct {
	vain  int       // how often one came
	until time.Time // when another one may
}

const (
	// patience is how long a pod is given to get onto the machine that came for it, the first time.
	patience = 30 * time.Second
	// lastPatience is the longest time until another machine comes for it.
	lastPatience = 30 * time.Minute
)

func newDemand() *demand {
	return &demand{waiting: map[string]*corev1.Pod{}, tried: map[string]attempt{}, told: map[string]string{}, onNode: map[string]int{}, idle: map[string]time.Time{}}
}

// take notes a change of a pod, and says whether it may be one for a pool.
func (d *demand) take(c cache.Delta) (matters bool) {
	if c.Prev != nil {
		matters = d.count(c.Prev.Object.(*corev1.Pod), -1)
	}
	key := c.Last().Key
	delete(d.waiting, key)
	if c.Now == nil {
		delete(d.tried, key)
		delete(d.told, key)
		return matters
	}
	pod := c.Now.Object.(*corev1.Pod)
	d.count(pod, 1)
	if Unschedulable(pod) {
		d.waiting[key] = pod
		return true
	}
	if pod.Spec.NodeName != "" {
		delete(d.tried, key)
		delete(d.told, key)
	}
	return matters
}

// count counts the pods that keep a node busy, and says whether it has become idle.
func (d *demand) count(pod *corev1.Pod, by int) (idle bool) {
	name := pod.Spec.NodeName
	if name == "" || !works(pod) {
		return false
	}
	if d.onNode[name] += by; d.onNode[name] > 0 {
		delete(d.idle, name)
		return false
	}
	delete(d.onNode, name)
	d.idle[name] = time.Now()
	return true
}

// works says that a pod keeps its node busy: not one that is over, that each node has, or that is
// the node's own.
func works(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOfNoCopy(pod)
	return !core.PodTerminal(pod) && !core.IsMirror(pod) && (owner == nil || owner.Kind != "DaemonSet")
}

// Unschedulable says that the scheduler has found no node for a pod.
func Unschedulable(pod *corev1.Pod) bool {
	if pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil {
		return false
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled {
			return c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable
		}
	}
	return false
}

// open are the pods for which machines may come now.
func (d *demand) open() (pods []*corev1.Pod) {
	for key, pod := range d.waiting {
		if time.Until(d.tried[key].until) <= 0 {
			pods = append(pods, pod)
		}
	}
	return pods
}

// came notes that a machine has come for pods.
func (d *demand) came(pods []*corev1.Pod) {
	for _, pod := range pods {
		key := podKey(pod)
		a := d.tried[key]
		a.until = time.Now().Add(min(patience<<min(a.vain, 10), lastPatience))
		a.vain++
		d.tried[key] = a
	}
}

// next is how long until a pod may have another machine come.
func (d *demand) next() time.Duration {
	next := longest
	for key := range d.waiting {
		if a, ok := d.tried[key]; ok {
			if left := time.Until(a.until); left > 0 {
				next = min(next, left)
			}
		}
	}
	return next
}
