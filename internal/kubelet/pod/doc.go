// Package pod runs the pods of a node: one goroutine owns each, the actor, asks package
// podstep what to do next, and does it. Each action is a value, a work (ops.go), and
// decides nothing. Nothing polls: an actor is woken by a change of its pod, by an event
// of the runtime, by a result of its own, or by its one timer.
//
// Start at [Set.Start] and [Actor.run]. What lives here is what is known of each pod and
// when it changes; how a container is made is package container's business, which pods
// there are the agent's.
//
// Invariants, cited by number in the code:
//
//	P1 A pod's state is touched by its actor's goroutine alone; others post functions to it.
//	P2 At most one status write of a pod is under way.
//	P3 An actor that ends with the agent leaves the containers as they are.
package pod
