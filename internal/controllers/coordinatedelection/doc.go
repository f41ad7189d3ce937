// Package coordinatedelection gives leases away to those who stand for them as LeaseCandidates: the coordinated
// leader election of upstream's feature gate CoordinatedLeaderElection, by its rules and times. Of the candidates that
// answer, the one of the oldest release leads, so that a cluster whose servers are
// exchanged one after another acts as the old release until the last of them is new.
//
// What is to be done about a lease is a pure function of it, its candidates and the time ([decide]): nothing is
// remembered of an election between two looks at it. Times are those that candidates and holders write by their own clocks, as the
// protocol has it.
package coordinatedelection
