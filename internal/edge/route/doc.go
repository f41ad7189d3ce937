// Package route is the table by which an edge process finds what becomes of a request: pure
// values, without a clock, a socket or an object of the API. Start at [Table.Find].
//
// A [Table] is immutable. What it was made of (a [Site] for each Ingress, the endpoints of
// their services, certificates) comes in a [Change], and [Table.With] makes the next table, which shares
// with the last one all that is the same: a change costs what it touches, beside a copy of
// three maps. Sites and changes are what goes over the socket of an edge process.
//
// Invariants, cited by number in the code:
//
//	R1 Of two sites that claim the same host, path and type, the older one has it, then the one whose key comes first.
//	R2 A host is looked for as it is written, then below a star, then among the rules for all hosts.
//	   Where a host has no rule for a path, the next one is asked.
//	R3 Of the rules of one host the longest path wins; of two that are alike, the exact one.
//	R4 Without a rule, the default of a site that has the host wins, then that of a site for all hosts.
//	R5 What a table answers depends on its sites alone, not on the order in which they came.
//	R6 Of rules for one path those go first that ask for a method, then for the most headers, then for the most
//	   parameters; a rule whose conditions are not met is as if it were not there.
//
// What comes to a Gateway comes through a [Door]: a port, with listeners by host, each of which has a table of its
// own. There a host below a star may have any number of labels.
package route
