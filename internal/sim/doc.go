// Package sim is a cluster in one process: the real control plane on the memory
// store, and simulated nodes, on virtual time when it runs in a testing/synctest
// bubble. Tests drive it with scripts: text files of commands and what they should
// print.
//
// It is for tests only: nothing of it may end up in the program.
//
// Start at Test in script.go, which runs such a file; verbs.go has the commands
// and explains each. cluster.go is the cluster, node.go a simulated node.
package sim
