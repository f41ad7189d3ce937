package plugins

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	configv1 "k8s.io/kube-scheduler/config/v1"

	"github.com/kemudi/kemudi/internal/scheduler/snapshot"
)

// resourceScore rates a node by how much of some resources would be used.
type resourceScore struct {
	rate      func(used, capacity int64) int64 // 0 to MaxScore
	skipZero  bool                             // a rate of 0 does not count in the mean
	resources []configv1.ResourceSpec
}

// newResourceScore returns the rating of a strategy; nil for that of a scheduler that is told
// nothing: the more is left of CPU and memory, the better.
func newResourceScore(s *configv1.ScoringStrategy) *resourceScore {
	if s == nil {
		return nil
	}
	r := &resourceScore{resources: s.Resources}
	switch s.Type {
	case configv1.MostAllocated:
		r.rate = mostUsed
	case configv1.RequestedToCapacityRatio:
		r.rate, r.skipZero = byShape(s.RequestedToCapacityRatio.Shape), true
	default:
		if isCPUAndMemory(s.Resources) {
			return nil
		}
		r.rate = mostLeft
	}
	return r
}

func isCPUAndMemory(list []configv1.ResourceSpec) bool {
	if len(list) != 2 || list[0].Weight != list[1].Weight {
		return false
	}
	a, b := corev1.ResourceName(list[0].Name), corev1.ResourceName(list[1].Name)
	return a == corev1.ResourceCPU && b == corev1.ResourceMemory || a == corev1.ResourceMemory && b == corev1.ResourceCPU
}

func mostLeft(used, capacity int64) int64 {
	if used > capacity {
		return 0
	}
	return (capacity - used) * MaxScore / capacity
}

func mostUsed(used, capacity int64) int64 { return min(used, capacity) * MaxScore / capacity }

// byShape rates by straight lines between points: utilization in percent to a
// score of at most 10.
func byShape(shape []configv1.UtilizationShapePoint) func(used, capacity int64) int64 {
	const stretch = MaxScore / 10
	return func(used, capacity int64) int64 {
		at := int64(100)
		if used <= capacity && capacity > 0 {
			at = used * 100 / capacity
		}
		for i, p := range shape {
			x, y := int64(p.Utilization), int64(p.Score)*stretch
			if at > x {
				continue
			}
			if i == 0 {
				return y
			}
			x0, y0 := int64(shape[i-1].Utilization), int64(shape[i-1].Score)*stretch
			return y0 + (y-y0)*(at-x0)/(x-x0)
		}
		return int64(shape[len(shape)-1].Score) * stretch
	}
}

func (r *resourceScore) score(c *Cycle, nodes []*snapshot.Node, scores []int64) {
	indexes := make([]int, len(r.resources))
	asked := make([]int64, len(r.resources))
	for i := range r.resources {
		name := corev1.ResourceName(r.resources[i].Name)
		indexes[i] = c.Snapshot.ResourceIndex(name)
		asked[i] = askedInScores(c.Pod, indexes[i])
	}
	for j, n := range nodes {
		var sum, weights int64
		for i, index := range indexes {
			used, capacity := usedInScores(n, index)
			if capacity == 0 || asked[i] == 0 && index > snapshot.EphemeralStorage { // what only some nodes have matters to those who ask for it
				continue
			}
			rate := r.rate(used+asked[i], capacity)
			if r.skipZero && rate == 0 {
				continue
			}
			sum += rate * r.resources[i].Weight
			weights += r.resources[i].Weight
		}
		switch {
		case weights == 0:
		case r.skipZero:
			scores[j] = int64(math.Round(float64(sum) / float64(weights)))
		default:
			scores[j] = sum / weights
		}
	}
}

// askedInScores is how much of a resource a pod counts for in scores.
func askedInScores(p *snapshot.Pod, index int) int64 {
	if index <= snapshot.Memory {
		return p.Scored[index]
	}
	return asked(p, index)
}

// asked is how much of a resource a pod asks for.
func asked(p *snapshot.Pod, index int) int64 {
	for _, need := range p.Requests {
		if need.Resource == index {
			return need.Value
		}
	}
	return 0
}

// usedInScores is how much of a resource is used on a node for scores, of how much.
func usedInScores(n *snapshot.Node, index int) (used, capacity int64) {
	if index < len(n.Allocatable) {
		capacity = n.Allocatable[index]
	}
	switch {
	case index <= snapshot.Memory:
		used = n.Scored[index]
	case index < len(n.Used):
		used = n.Used[index]
	}
	return used, capacity
}
