// Package numa knows which processors and which memory of a machine are near to each other, and merges
// what several resources would have of that: the pure part of aligning what a container gets.
//
// [Read] looks at a machine once (machine.go). A [Mask] is a set of its NUMA nodes, a [Hint] one that a resource
// could be had from; [Policy.Merge] chooses the nodes that suit all resources (merge.go). Nothing
// here knows of pods, or keeps anything.
package numa
