// Package snapshot is what the scheduler knows of the cluster, in the form that
// answers its questions fastest: a dense record for each node, and counts of pods
// by label selector and topology domain that are kept up to date by every
// change, so that a scheduling cycle never walks over pods.
//
// Start at [Snapshot]. [Node] and [Pod] are the records; [Constraints] are what a pod's
// spec asks of a node, parsed once for all pods that ask the same; the [Shape] of a pod is all that it
// asks, and an edition numbers a state of a node, so that others can remember what they found out; [PodSet],
// [View] and [Term] are the counts. Deciding anything is not done here: that is
// package plugins and the scheduler's cycle.
//
//	Pod ──── Class ──── PodSet ──── View ── Topology
//	 │     (labels)   (selector)  (count by domain of nodes in a NodeSet)
//	 └────── Term (an affinity term of running pods, summed up by domain)
//
// Invariants, cited by number in the code:
//
//	S1 Add and Remove are exact inverses, so a caller may change the snapshot to ask "what if" and put it back.
//	S2 Every count equals what one would count in a snapshot built anew from the same objects.
//	S3 What nothing has asked for since the sweep before last is forgotten; it is counted again when asked for.
//	S4 Two states of a node that differ in what filters may ask have two editions, and so have two of the snapshot; volumes aside.
//
// A Snapshot belongs to one goroutine.
package snapshot
