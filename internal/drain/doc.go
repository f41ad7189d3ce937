// Package drain finds out when no node sends new connections to a pod any more, so that its
// containers can be told to end: after the rules of each node's service proxy have left the
// pod out, not beside them.
//
//	pod's node                            server                     every other node
//	Pods.Await: services, slices ->  R
//	own proxy and edge have applied R
//	          ---- GET Path(R) ----> Nodes.Await ---- GET Path(R) ----> Handler: its proxy, its edge
//	          <--- who is silent ---             <--- applied revision ---
//
// R is the revision of the write by which the EndpointSlices show that the pod ends. A proxy
// tells up to which revision of EndpointSlices its rules are true, and so does an edge. Nothing of it is written to
// the store, and nobody says anything unless he is asked: a cluster in which no pod of a Service
// ends has no request, no connection and no goroutine of this. Why it is asked for so, and who
// need not answer: docs/decisions/045-drain-before-stop.md.
//
// Start at [Pods.Await]. When a pod is held back for this, and for how long at the most, is
// the business of package podstep; what a node's rules are, of package proxy.
//
// Invariants, cited by number in the code:
//
//	D1 A pod that no Service with rules selects is not waited for, and nobody is asked.
//	D2 A node is asked one thing at a time, for all who wait.
//	D3 A node that is silent is waited for once, then passed over for a while.
//	D4 A node that says that it has no such rules is believed.
package drain
