// Package servers knows which servers of a cluster live: each of several keeps one record of
// itself in the store, a Lease in kube-system as upstream's servers have it, that is there
// until the server ends or nobody hears of it any more.
//
// A [Keeper] keeps the record of this process, [Living] reads those of all. What follows from
// a server's end (its address leaves the service "kubernetes", its leases are free) is up to others.
// Who is alone keeps no record. Why: docs/decisions/033-servers-come-and-go.md.
//
// Invariants, cited by number in the code:
//
//	V1 A record is there while its process lives, and goes some time after [Keeper.Until] has passed.
//	V2 Until is by this process's clock, counted from before the store was asked.
package servers
