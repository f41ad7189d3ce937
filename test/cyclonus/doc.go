// Package cyclonus is a module of the program of that name, which a test runs against Kemudi: it makes network policies,
// tries all connections between pods under each, and compares what comes about with what should. Its go.mod
// names it as a tool.
//
// Nothing of it is part of Kemudi.
package cyclonus
