// Package known keeps on disk what a machine has last heard of its cluster, for times when
// no server can be asked.
//
// Start at [Open]. A state is a revision and encoded objects under a name; what is in
// them and when they are written is the business of the caller. Only the owner of
// the directory can read it, as there are secrets among the states.
//
// Invariants, cited by number in the code:
//
//	W1 A state is read as it was written as a whole, or not at all.
//	W2 What is broken counts as not there, and is said to be.
package known
