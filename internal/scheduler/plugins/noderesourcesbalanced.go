package plugins

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	configv1 "k8s.io/kube-scheduler/config/v1"

	"github.com/kemudi/kemudi/internal/scheduler/snapshot"
)

// nodeResourcesBalancedAllocation prefers nodes where some resources, CPU and
// memory unless it is told others, would be used to a similar degree.
type nodeResourcesBalancedAllocation struct {
	resources []corev1.ResourceName // nil: CPU and memory

	// Of the pod at hand, by resource.
	indexes []int
	asked   []int64
	parts   []float64
}

func newNodeResourcesBalanced(args *configv1.NodeResourcesBalancedAllocationArgs) *nodeResourcesBalancedAllocation {
	p := &nodeResourcesBalancedAllocation{resources: []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}}
	if args != nil {
		p.resources = nil
		for _, r := range args.Resources {
			p.resources = append(p.resources, corev1.ResourceName(r.Name))
		}
	}
	return p
}

func (*nodeResourcesBalancedAllocation) Name() string { return "NodeResourcesBalancedAllocation" }

func (p *nodeResourcesBalancedAllocation) Score(c *Cycle, nodes []*snapshot.Node, scores []int64) bool {
	p.indexes, p.asked = p.indexes[:0], p.asked[:0]
	any := false
	for _, name := range p.resources {
		i := c.Snapshot.ResourceIndex(name)
		want := asked(c.Pod, i)
		if want == 0 && i > snapshot.EphemeralStorage { // what only some nodes have matters to those who ask for it
			continue
		}
		p.indexes, p.asked = append(p.indexes, i), append(p.asked, want)
		any = any || want > 0
	}
	if !any { // pods that ask for nothing would all gather on one node
		return false
	}
	if len(p.indexes) == 2 {
		p.scoreTwo(nodes, scores)
		return true
	}
	for i, n := range nodes {
		scores[i] = int64((1 - p.deviation(n)) * MaxScore)
	}
	return true
}

// scoreTwo does for two resources, as there are unless the plugin is told others,
// without a call for each node.
func (p *nodeResourcesBalancedAllocation) scoreTwo(nodes []*snapshot.Node, scores []int64) {
	a, b, askedA, askedB := p.indexes[0], p.indexes[1], p.asked[0], p.asked[1]
	for i, n := range nodes {
		scores[i] = MaxScore
		x, ok := fraction(n, a, askedA)
		y, also := fraction(n, b, askedB)
		if ok && also {
			scores[i] = int64((1 - math.Abs(x-y)/2) * MaxScore)
		}
	}
}

// Shared: pods of a shape ask the same of a node.
func (*nodeResourcesBalancedAllocation) Shared() Scope { return Scope{Score: true} }

// deviation is the standard deviation of the used parts of the resources that
// a node has.
func (p *nodeResourcesBalancedAllocation) deviation(n *snapshot.Node) float64 {
	parts, sum := p.parts[:0], 0.0
	for i, r := range p.indexes {
		if part, ok := fraction(n, r, p.asked[i]); ok {
			parts = append(parts, part)
			sum += part
		}
	}
	p.parts = parts
	switch len(parts) {
	case 0, 1:
		return 0
	case 2: // exactly as scoreTwo has it
		return math.Abs(parts[0]-parts[1]) / 2
	}
	mean, squares := sum/float64(len(parts)), 0.0
	for _, x := range parts {
		squares += (x - mean) * (x - mean)
	}
	return math.Sqrt(squares / float64(len(parts)))
}

// fraction is how much of a node's resource would be used.
func fraction(n *snapshot.Node, resource int, asked int64) (float64, bool) {
	if resource >= len(n.Allocatable) || n.Allocatable[resource] == 0 {
		return 0, false
	}
	used := asked
	if resource < len(n.Used) {
		used += n.Used[resource]
	}
	return min(1, float64(used)/float64(n.Allocatable[resource])), true
}
