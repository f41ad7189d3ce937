// Package podstep decides what a node does next for one pod: a pure function
// from what the API wants and what the node sees to the pod's status and a list
// of actions. Start at [Next].
//
// Here live the order of a pod's containers, restart policy, deletion, deadlines,
// eviction for what a pod holds, phase, conditions and container statuses; when
// volumes are written anew, probes run, storage is measured, mirrors of static pods
// are told, and what has failed is tried again. Nothing here reads a clock, starts a
// goroutine or does I/O; how an action is carried out is the business of package
// kubelet.
//
// Invariants, cited by number in the code:
//
//	P1 The same desired and observed state and time give the same result.
//	P2 An action that is under way is not asked for again, except a kill with a shorter grace.
//	P3 The phase is Succeeded or Failed only when no container runs any more, and the devices of its claims are
//	   not its own any more.
//	P4 A pod whose end has been decided never starts a container again.
//	P5 The pod object is deleted only when nothing runs, everything is cleaned up and its last status is in the API.
package podstep
