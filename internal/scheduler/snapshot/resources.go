package snapshot

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kemudi/kemudi/internal/api/core"
)

// Indexes of the resources that every node has; others are numbered as they
// appear. CPU is counted in millicores, everything else in whole units.
const (
	CPU = iota
	Memory
	EphemeralStorage
	firstOther
)

// What a container without a request counts for when nodes are scored (not
// when they are filtered): 100 millicores and 200 MB.
const (
	unsetCPU    = 100
	unsetMemory = 200 * 1024 * 1024
)

// Amount is so much of one resource.
type Amount struct {
	Resource int // index, see [Snapshot.ResourceName]
	Value    int64
}

// resourceNames numbers the names of resources.
type resourceNames struct {
	names []corev1.ResourceName
	index map[corev1.ResourceName]int
}

func newResourceNames() resourceNames {
	r := resourceNames{index: map[corev1.ResourceName]int{}}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
		r.of(name)
	}
	return r
}

func (r *resourceNames) of(name corev1.ResourceName) int {
	i, ok := r.index[name]
	if !ok {
		i = len(r.names)
		r.names = append(r.names, name)
		r.index[name] = i
	}
	return i
}

// ResourceName is the name of the resource with the index.
func (s *Snapshot) ResourceName(index int) corev1.ResourceName { return s.resources.names[index] }

// ResourceIndex is the index of a resource, which it gets now if it has none.
func (s *Snapshot) ResourceIndex(name corev1.ResourceName) int { return s.resources.of(name) }

func value(index int, q *resource.Quantity) int64 {
	if index == CPU {
		return q.MilliValue()
	}
	return q.Value()
}

// amounts is list in the order of the indexes, without zeros and pods.
func (s *Snapshot) amounts(list corev1.ResourceList) []Amount {
	out := make([]Amount, 0, len(list))
	for name, q := range list {
		if name == corev1.ResourcePods {
			continue
		}
		i := s.resources.of(name)
		if v := value(i, &q); v != 0 {
			out = append(out, Amount{i, v})
		}
	}
	slices.SortFunc(out, func(a, b Amount) int { return cmp.Compare(a.Resource, b.Resource) })
	return out
}

// requests is what a node must have for p, and what p counts for in scores.
func (s *Snapshot) requests(p *corev1.Pod) (need []Amount, scored [2]int64) {
	need = s.amounts(core.PodRequests(p))
	for _, a := range need {
		if a.Resource <= Memory {
			scored[a.Resource] = a.Value
		}
	}
	if scored[CPU] != 0 && scored[Memory] != 0 && allRequested(p) {
		return need, scored
	}
	filled := *p
	filled.Spec.Containers = withRequests(p.Spec.Containers)
	filled.Spec.InitContainers = withRequests(p.Spec.InitContainers)
	list := core.PodRequests(&filled)
	return need, [2]int64{list.Cpu().MilliValue(), list.Memory().Value()}
}

func allRequested(p *corev1.Pod) bool {
	for _, cs := range [][]corev1.Container{p.Spec.Containers, p.Spec.InitContainers} {
		for i := range cs {
			r := cs[i].Resources.Requests
			if _, ok := r[corev1.ResourceCPU]; !ok {
				return false
			}
			if _, ok := r[corev1.ResourceMemory]; !ok {
				return false
			}
		}
	}
	return true
}

// withRequests returns copies of containers that have what scores assume.
func withRequests(containers []corev1.Container) []corev1.Container {
	out := slices.Clone(containers)
	for i := range out {
		given := out[i].Resources.Requests
		list := corev1.ResourceList{
			corev1.ResourceCPU:    *resource.NewMilliQuantity(unsetCPU, resource.DecimalSI),
			corev1.ResourceMemory: *resource.NewQuantity(unsetMemory, resource.BinarySI),
		}
		for name, q := range given {
			list[name] = q
		}
		out[i].Resources.Requests = list
	}
	return out
}
