// Package leader decides which of several control planes over one store runs the
// controllers, and which the scheduler: an [Elector] holds a Lease in kube-system, with
// upstream's names, rules and times, and runs what it is given only while it does.
//
// Nobody has to trust clocks. What runs while a process leads writes under the condition that
// the lease is as this process has it (package fence): who has slept through the lease
// finds out by the first write, which fails. Why: docs/decisions/024-leaders-are-fenced.md.
// Who is alone with its store leads without a lease, and goes on doing so when it gets one
// because others come. Who is seen to be dead, by its record in package servers, loses its leases before
// they have run out: docs/decisions/033-servers-come-and-go.md.
//
// Invariants, cited by number in the code:
//
//	L1 What runs in a term is told to end before anybody else may lead, by this process's clock.
//	L2 A write of a term is in the store only if the lease was this term's at that revision.
//	L3 A term begins after all that ran in the one before, in this process, has returned.
//	L4 A lease that is given back is given back after all that ran in its term has returned.
//	L5 A term begins when the caches of this process show all that was written before it.
package leader
