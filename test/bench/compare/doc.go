// Command compare measures two commits by turns in one run: the one that is checked
// out, with what is not committed yet, and another. What the machine does
// besides, it does to both, so that a slip shows as a ratio on any machine.
//
//	go run ./test/bench/compare -base HEAD~3 -packages ./internal/cache -bench Apply
//	go run ./test/bench/compare -base HEAD~3 -load outside
//
// The first form runs Go benchmarks of both trees; the second starts the programs
// of both, one after the other, and sends them the load of test/bench (root). It
// prints a table and judges nothing: it fails only if it cannot measure.
package main
