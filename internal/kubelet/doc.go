// Package kubelet is the node agent: it registers the node, keeps its heartbeat,
// runs the pods bound to it through a container runtime, and serves their logs
// and streams.
//
// Start at [Agent.Run] (kubelet.go), then podactor.go: one goroutine owns each
// pod, asks package podstep what to do next, and does it: each action is a value,
// a work (ops.go), and decides nothing. Nothing polls: an actor is woken by a
// change of its pod, by an event of the runtime, by a result of its own, or by its
// one timer.
//
// What lives here joins the parts; the parts are packages below that know
// nothing of the agent: podstep, admit, evict and backoff (decisions), cri
// (translation), node (the object, its heartbeat and its lease), machine, usage,
// image, volume, probe, logs, relay and guard (streams, and who may ask for them),
// and fakecri for tests and simulated nodes.
//
// Invariants, cited by number in the code:
//
//	K1 Ending the agent ends no container; the next one finds them by their labels.
//	K2 A pod's state is touched by its actor's goroutine alone; others post functions to it.
//	K3 At most one status write of a pod is under way.
//	K4 What is on the node for no pod of the API is removed, but only after the API has told which pods there are.
package kubelet
