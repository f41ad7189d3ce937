// Package users gives pods with hostUsers: false user IDs of their own: a range
// of the node's IDs each, to which the pod's own IDs from 0 up are mapped.
//
// What lives here are the ranges and who has them. What a range means for a pod's
// sandbox, containers and mounts is package cri's.
//
// Invariants, cited by number in the code:
//
//	U1 No two pods have IDs in common, and none has IDs below 65536.
//	U2 A pod keeps its range until nothing of it is left on the node, whatever process runs the node then.
//	U3 No pod gets IDs that /etc/subuid or /etc/subgid give to somebody else.
package users
