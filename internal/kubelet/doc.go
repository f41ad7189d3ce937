// Package kubelet is the node agent: it registers the node, keeps its heartbeat,
// runs the pods bound to it through a container runtime, and serves their logs
// and streams.
//
// Start at [Agent.Run] (kubelet.go), then package pod, where one goroutine owns each
// pod. What lives here joins the parts; the parts are packages below that know nothing
// of the agent: podstep, admit, evict and backoff (decisions), pod (carries them out),
// container (what is asked of the runtime), runtime (what is seen in it), cri
// (translation), objects and disk (what pods refer to, and have on the machine), node
// (the object, its heartbeat and its lease), machine, usage, image, volume, probe, logs,
// relay and guard (streams, and who may ask for them), contain (panics), and fakecri for
// tests and simulated nodes.
//
// Invariants, cited by number in the code:
//
//	K1 Ending the agent ends no container; the next one finds them by their labels.
//	K2 What is on the node for no pod of the API is removed, but only after the API has told which pods there are.
package kubelet
