package evict

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/kubelet/manifest"
)

// systemCritical is the lowest priority of what the cluster cannot do without.
const systemCritical = 2 * 1000000000

// Critical reports whether a pod is never evicted: the cluster depends on it, or
// the node would start it again at once.
func Critical(pod *v1.Pod) bool {
	if source := pod.Annotations[manifest.AnnotationSource]; source != "" && source != "api" {
		return true
	}
	return pod.Spec.Priority != nil && *pod.Spec.Priority >= systemCritical
}

// User is a pod with what it uses of the resource that runs out.
type User struct {
	Pod *v1.Pod
	// Used is by container, in bytes; Other is what no container is charged for. Of
	// inodes and processes there is Other alone, and how many they are.
	Used  map[string]int64
	Other int64
}

// Total is all that the pod uses.
func (u User) Total() int64 {
	sum := u.Other
	for _, n := range u.Used {
		sum += n
	}
	return sum
}

// resourceOf is the resource of a pod's requests that the signal is about; empty: nobody
// can ask for it.
func resourceOf(s Signal) v1.ResourceName {
	switch s {
	case MemoryAvailable, PodsMemory:
		return v1.ResourceMemory
	case PIDAvailable, NodeFSInodes, ImageFSInodes:
		return ""
	}
	return v1.ResourceEphemeralStorage
}

// Choose returns the pod to evict, or nil. Pods that use more than their request go
// before pods that do not; among these, pods of low priority go first; among pods of
// one priority, the pod that exceeds its request by most. Nobody requests inodes and processes.
func Choose(s Signal, users []User) *User {
	users = slices.DeleteFunc(slices.Clone(users), func(u User) bool { return Critical(u.Pod) })
	if len(users) == 0 {
		return nil
	}
	beyond := func(u User) int64 {
		requests := core.PodRequests(u.Pod)
		q := requests[resourceOf(s)]
		return u.Total() - q.Value()
	}
	exceeds := func(u User) int {
		if beyond(u) > 0 || resourceOf(s) == "" {
			return 0
		}
		return 1
	}
	priority := func(u User) int32 {
		if p := u.Pod.Spec.Priority; p != nil {
			return *p
		}
		return 0
	}
	first := slices.MinFunc(users, func(a, b User) int {
		return cmp.Or(cmp.Compare(exceeds(a), exceeds(b)), cmp.Compare(priority(a), priority(b)), cmp.Compare(beyond(b), beyond(a)), cmp.Compare(a.Pod.Name, b.Pod.Name))
	})
	return &first
}

// Annotations by which programs read of an event what an eviction was for: what has run out, and, if containers use more of
// it than they asked for, which ones, and how much, in the same order.
const (
	AnnotationStarved   = "starved_resource"
	AnnotationOffending = "offending_containers"
	AnnotationUsage     = "offending_containers_usage"
)

// Message is what the pod is told: what has run out, and which of its containers
// use more than they asked for. The annotations say the same to programs.
func (u User) Message(s Starved) (message string, annotations map[string]string) {
	var b strings.Builder
	b.WriteString(s.Message())
	var names, usage []string
	for _, list := range [][]v1.Container{u.Pod.Spec.InitContainers, u.Pod.Spec.Containers} {
		for i := range list {
			c := &list[i]
			request := c.Resources.Requests[resourceOf(s.Signal)]
			if used := u.Used[c.Name]; used > request.Value() {
				amount := resource.NewQuantity(used, resource.BinarySI).String()
				fmt.Fprintf(&b, "Container %s was using %s, request is %s, has larger consumption of %s. ", c.Name, amount, request.String(), resourceOf(s.Signal))
				names, usage = append(names, c.Name), append(usage, amount)
			}
		}
	}
	annotations = map[string]string{AnnotationStarved: s.Signal.Resource()}
	if len(names) > 0 {
		annotations[AnnotationOffending], annotations[AnnotationUsage] = strings.Join(names, ","), strings.Join(usage, ",")
	}
	return b.String(), annotations
}

// Refuse returns why a node under pressure does not take the pod on; empty if it does.
func Refuse(pod *v1.Pod, pressure map[v1.NodeConditionType]bool) string {
	var names []string
	for c := range pressure {
		names = append(names, string(c))
	}
	if len(names) == 0 || Critical(pod) {
		return ""
	}
	if len(names) == 1 && pressure[v1.NodeMemoryPressure] {
		tolerates := slices.ContainsFunc(pod.Spec.Tolerations, func(t v1.Toleration) bool {
			return (t.Key == "" || t.Key == v1.TaintNodeMemoryPressure) && (t.Effect == "" || t.Effect == v1.TaintEffectNoSchedule)
		})
		if core.QOSClass(pod) != v1.PodQOSBestEffort || tolerates {
			return ""
		}
	}
	slices.Sort(names)
	return fmt.Sprintf("The node had condition: %s. ", names)
}
