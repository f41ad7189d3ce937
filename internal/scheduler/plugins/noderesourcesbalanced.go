package plugins

import (
	"math"

	"github.com/kemudi/kemudi/internal/scheduler/snapshot"
)

// nodeResourcesBalancedAllocation prefers nodes where CPU and memory would be
// used to a similar degree.
type nodeResourcesBalancedAllocation struct{}

func (*nodeResourcesBalancedAllocation) Name() string { return "NodeResourcesBalancedAllocation" }

func (*nodeResourcesBalancedAllocation) Score(c *Cycle, nodes []*snapshot.Node, scores []int64) bool {
	var asked [2]int64
	for _, need := range c.Pod.Requests {
		if need.Resource <= snapshot.Memory {
			asked[need.Resource] = need.Value
		}
	}
	if asked == [2]int64{} { // pods that ask for nothing would all gather on one node
		return false
	}
	for i, n := range nodes {
		cpu, hasCPU := fraction(n, snapshot.CPU, asked[snapshot.CPU])
		memory, hasMemory := fraction(n, snapshot.Memory, asked[snapshot.Memory])
		deviation := 0.0
		if hasCPU && hasMemory {
			deviation = math.Abs(cpu-memory) / 2
		}
		scores[i] = int64((1 - deviation) * MaxScore)
	}
	return true
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
