// Package cache holds the one read-only copy of a resource's objects that a
// process keeps: decoded, ordered, indexed, with a log of recent changes to
// follow. It does not know where objects come from: the API server feeds it
// from the store (package watchcache), an agent from a watch over HTTPS.
//
// Everything handed out is shared and must not be changed.
//
// Invariants, cited by number in the code:
//
//	K1 Readers see the state after a whole batch, never within one.
//	K2 A cursor delivers every change after its start once, in revision order, or fails with ErrTooOld.
//	K3 A cursor on an index value sees exactly the objects that have the value: one that gains it is Added, one that loses it is Deleted.
//	K4 WaitRev(r) returns only when the cache shows revision r or later.
//	K5 A follower is told of every object that has changed, however late it reads: each Prev is the state it was told last, and what it was told is the state of the cache then.
package cache
