// Package podnet is the pod network of a node: the bridge that pods are
// attached to, their addresses, the ways to the pods of other nodes, and the
// masquerading of what leaves the cluster.
//
// It knows links, routes, sysctls, nftables and CNI, and nothing of Kubernetes:
// who asks for a route to which prefix is the caller's business. Service rules are
// in package proxy. Everything that is changed on the host is found again,
// listed and undone by [Reset], also after a crash and by another process.
//
//	pod eth0 ---- veth ---- bridge kemudi0 (the pods' gateway) ---- link of the machine ---- neighbours
//	                                                           \--- kemudi-vxlan4 or 6 ---- other nodes
//
// Pods send even what is for their neighbours on the bridge to the gateway
// (the CNI configuration gives them routes that say so). Thus every packet passes
// through the node's IP layer, where service addresses are translated back, with
// or without the kernel's br_netfilter.
//
// What a pod's link brings to the bridge with an address that is not the pod's is dropped there (senders.go).
//
// [Routes] has the ways to other nodes. What it wants is a map of places in the kernel
// and their content (peers.go); it makes the difference to what is there (kernel.go), so
// that a start, a change and a repair are the same thing:
//
//	R1. What is as it should be is not touched. A restart loses no packet.
//	R2. A process may end between any two changes: what is wanted next time does not
//	    depend on how far it came, and every object of ours is known as ours from its making.
//	R3. Nothing that is not ours is replaced or removed.
//
// What others take away of it while [Network.Run] runs is made again (mend.go); what
// they forbid with rules of their own is told of.
//
// Start at [Network].
package podnet
