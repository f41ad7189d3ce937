// Package kubelet is the node agent: it registers the node, keeps its heartbeat,
// runs the pods bound to it through a container runtime, and serves their logs
// and streams.
//
// Start at [Agent.Run] (kubelet.go), then package pod, where one goroutine owns each
// pod. What lives here makes the parts (wire.go) and joins them. The parts are packages
// below that know nothing of the agent:
//
//	podstep admit evict backoff    decide
//	pod static                     carry out what is decided about pods, and have those of manifests
//	container runtime cri          act on the runtime, look at it, and translate for it
//	objects image volume disk      what pods refer to and have on the machine
//	plugin device dra podresources programs of others that have devices, who gets which, and who asks that
//	pin cpus memory numa           who has processors and memory for themselves, and where
//	state sequence                 how that is written down, and which containers of a pod run at a time
//	node machine pressure usage    the node in the API, what it is, what it has left
//	server relay logs guard        the agent's API, its streams, and who may ask
//	probe contain                  probes; panics
//	fakecri fakemachine apitest    for tests and simulated nodes
//
// Invariants, cited by number in the code:
//
//	K1 Ending the agent ends no container; the next one finds them by their labels.
//	K2 What is on the node for no pod of the API is removed, but only after the API itself has told which pods there are: what was known of it earlier is not enough.
package kubelet
