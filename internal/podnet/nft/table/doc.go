// Package table keeps tables of nftables rules in step with a model of them: what
// is to be in a table goes in piece by piece, and what differs from before is
// brought to the kernel in one transaction. What the rules are for is the affair of
// the packages above, each with a table of its own.
//
//	Elem, Chain   what a table holds, as data that can be compared and read
//	Model         pure: who claims which element, which chains there are, and what has changed
//	Changes       the difference between two states of a model, or the whole of one
//	Kernel        writes changes, and looks at what the kernel has
//
// A table is written whole at the start of its program, after a refusal, and after
// another program has changed it; all else is differences.
package table
