// Package podnet is the pod network of a node: the bridge that pods are
// attached to, their addresses, the ways to the pods of other nodes, and the
// masquerading of what leaves the cluster.
//
// It knows links, routes, sysctls, nftables and CNI, and nothing of Kubernetes:
// who asks for a route to which prefix is the caller's business. Service rules are
// in package proxy. Everything that is changed on the host is found again,
// listed and undone by [Reset], also after a crash and by another process.
//
//	pod eth0 ---- veth ---- bridge kemudi0 (the pods' gateway) ---- routes to other nodes
//
// Pods send even what is for their neighbours on the bridge to the gateway
// (the CNI configuration gives them routes that say so). Thus every packet passes
// through the node's IP layer, where service addresses are translated back, with
// or without the kernel's br_netfilter.
//
// What others take away of it while [Network.Run] runs is made again (mend.go); what
// they forbid with rules of their own is told of.
//
// Start at [Network].
package podnet
