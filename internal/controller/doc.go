// Package controller is the runtime of controllers. A controller is a value
// ([Spec]): what it reads, what it writes, and one function that moves one
// object towards its desired state. Everything else is owned here: queues and
// caches, back-off, conflicts, events, metrics, leadership, the RBAC role and
// shutdown.
//
// Start at [Spec] and [Kit]. A controller that is not about one object at a time
// (the garbage collector) declares a [Keyed] or a [Custom] instead. Inputs that come and
// go while it runs are an [Every]; owners that select others by labels, a [Selection].
//
// Invariants, cited by number in the code and in the tests:
//
//	C1 A key is never reconciled by two workers at once.
//	C2 A key changed during its reconcile is reconciled again.
//	C3 After a reconcile that wrote revision r of a cached resource, the key is not reconciled until that cache shows r; no other key waits for it.
//	C4 Every add, update or delete of a declared input wakes its keys at least once, also across a relist.
//	C5 A write that is not in Writes fails.
//	C6 Update and Delete carry the revision that was read; DeleteByUID carries the UID alone.
//	C7 Run returns only after every goroutine it started has ended.
//	C8 An error is logged once per reconcile, with the key: what the API server refuses (a quota, a
//	   policy) as information; conflict and not-found are not logged.
//	C9 Losing leadership cancels the context before another holder starts.
//	C10 A key that costs much takes a twentieth of a processor at the most, or as little as its controller says: what changes while it cools down is looked at together.
//	C11 A key that has changed waits for others that have, and for one in five of those that wait behind such: that are only there from the start, or of which their controller says so.
package controller
