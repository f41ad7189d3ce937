// Package simulate is what people simulate: pools of nodes that live in the API alone, which
// grow by pods that fit nowhere and shrink when nodes have nothing to do, and questions about a cluster
// that a copy of it answers: how many more of a pod fit ([Fit]), what happens when a node is
// drained ([Drain]).
//
// The control plane is the real one, and so are its answers; nodes are those of package simnode.
// How a simulation is started, and where its state is, is package cluster's.
package simulate
