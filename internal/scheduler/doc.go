// Package scheduler puts pending pods on nodes: it chooses a node for each pod
// that names this scheduler and no node, and binds it there through the API.
//
// Start at scheduler.go: one goroutine owns all state (the snapshot of the
// cluster, the queue of pending pods, the calls in flight) and takes in, in turn,
// changes from the caches (feed.go), answers of calls (calls.go) and pods to
// schedule. cycle.go is the decision itself, a pure function of the snapshot;
// extend.go asks extenders about it; flight.go is the way of a pod from its decision to its binding;
// group.go has groups of pods that wait for each other, which groupattempt.go places as one, by the
// decision in gang.go and what extenders say of it (groupextend.go), or makes room for (grouppreempt.go);
// message.go says why there was none; preempt.go looks for pods that could make
// room, budgets.go for whom that is forbidden. What was found out about one pod is remembered
// for others of its shape (memo.go). The rules are plugins (package plugins, in the order of its list.go); which
// of them, and how, is the profile that a pod names (profile.go), as package config reads it.
//
// Upstream's names are kept for plugins, messages, events, conditions and metrics.
//
// Invariants, cited by number in the code:
//
//	B1 A pod takes its place in the snapshot before its binding is sent, so no other pod is promised the same.
//	B2 Calls about one pod are made one after the other.
//	B3 A pod whose binding failed is tried again, unless it is bound or gone.
//	B4 A pod that could not be scheduled is tried again after an event that can help it, and after 5 minutes in any case.
//	B5 A plugin whose Reserve was called is told of the pod's binding or of its end, one of both, once.
//	B6 What is remembered changes no decision: it holds until the node or the snapshot has another edition.
//	B7 Devices that a claim was promised are nobody else's until the claim is seen to have them, or is known not to get them from any pod that holds the promise.
//	B8 Of a group as many pods as it needs have a place, or none that has not been bound before.
package scheduler
