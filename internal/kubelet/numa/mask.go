package numa

import (
	"cmp"
	"iter"
	"math/bits"
	"strconv"
	"strings"
)

// MaxNode is the highest number that a NUMA node may have here.
const MaxNode = 63

// Mask is a set of NUMA nodes; 0 stands for no set at all, as no container can do without any node.
type Mask uint64

// MaskOf is the set of the nodes; what cannot be the number of one is left out.
func MaskOf(nodes ...int) Mask {
	var m Mask
	for _, n := range nodes {
		if n >= 0 && n <= MaxNode {
			m |= 1 << n
		}
	}
	return m
}

// Has reports whether the node is in the set.
func (m Mask) Has(node int) bool { return node >= 0 && node <= MaxNode && m&(1<<node) != 0 }

// Count is how many nodes there are.
func (m Mask) Count() int { return bits.OnesCount64(uint64(m)) }

// Within reports whether all nodes of the set are in the other one.
func (m Mask) Within(other Mask) bool { return m&^other == 0 }

// Nodes are the nodes, sorted.
func (m Mask) Nodes() []int {
	var out []int
	for rest := uint64(m); rest != 0; rest &= rest - 1 {
		out = append(out, bits.TrailingZeros64(rest))
	}
	return out
}

// String is the set as the kernel's lists of memory nodes have it: "0,2".
func (m Mask) String() string {
	var parts []string
	for _, n := range m.Nodes() {
		parts = append(parts, strconv.Itoa(n))
	}
	return strings.Join(parts, ",")
}

// compare orders sets: those of fewer nodes first, then those of lower ones.
func (m Mask) compare(other Mask) int {
	return cmp.Or(cmp.Compare(m.Count(), other.Count()), cmp.Compare(m, other))
}

// Masks are all sets of some of the nodes, those of fewer nodes first.
func Masks(nodes []int) iter.Seq[Mask] {
	return func(yield func(Mask) bool) {
		for size := 1; size <= len(nodes); size++ {
			if !subsets(nodes, size, 0, yield) {
				return
			}
		}
	}
}

// subsets yields m together with each choice of so many of the nodes.
func subsets(nodes []int, size int, m Mask, yield func(Mask) bool) bool {
	if size == 0 {
		return yield(m)
	}
	for i := 0; i+size <= len(nodes); i++ {
		if !subsets(nodes[i+1:], size-1, m|MaskOf(nodes[i]), yield) {
			return false
		}
	}
	return true
}
