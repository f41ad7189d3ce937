// Package netpolicy makes the kernel of a node let pods have only the connections that
// NetworkPolicies allow them. Packets never pass through this process, and the rules
// stay in force while it does not run.
//
// Three parts, which know of each other in this order only:
//
//	Model     pure: policies, pods and namespaces go in, and what is to be changed in
//	          the rules comes out. profile.go has the decisions, chains.go the rules.
//	kernel    ends connections that a change has forbidden; rules go by package table.
//	Agent     feeds the model from the caches and calls the kernel, while there is a
//	          policy. Without one there is no table, no watch of pods and no goroutine
//	          but the one that waits for the first policy.
//
// The rules live in the tables "ip kemudi-policy" and "ip6 kemudi-policy". What the node
// forwards is judged after services have been translated (DNAT) and before any source is
// hidden (SNAT): by the addresses of the pods. What the node itself sends to its pods,
// and they to it, is not forwarded and always passes, as upstream wants it.
//
//	forward:  connections that are known -> known, others -> judge
//	known:    replies pass; source or destination in @recheck -> judge; all else passes
//	judge:    a pod may talk to itself (@self)
//	          source in @targets-out -> number -> @profiles -> out-N
//	          destination in @targets-in -> number -> @profiles -> in-N
//	out-N:    one rule for each peer and its ports that lets pass; the last one drops
//
// A profile (N) is what pods of this node may do that the same rules of policies select.
// The addresses of peers are in sets, one for each distinct selector however many
// policies name it: a pod that comes or goes is one element in each, and one in
// targets-in or targets-out if it runs here.
//
// Invariants, cited by number in the code:
//
//	N1 Only our own tables are ever written to.
//	N2 Every change of the rules is one transaction: no packet sees half of it.
//	N3 A pod's first container starts when the rules for its addresses are in force.
//	N4 In the transaction that may forbid connections of an address, the address enters
//	   @recheck: what is known of it is judged again, packet by packet, until the
//	   connections that are forbidden have been ended. So a crash leaves none of them open.
//	N5 What is kept and written depends on this node's pods: policies that select none of
//	   them, and peers that none of theirs name, have no set and no rule.
package netpolicy
