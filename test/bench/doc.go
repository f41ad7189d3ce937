// Command bench measures the built program on a machine of its own (a network
// namespace and directories that it makes and removes) and writes a table of the
// figures, each beside the bars that are set for it, to docs/bench.md.
//
//	go run ./test/bench -kemudi bin/kemudi
//
// With -baseline the load from outside is also put on the program of test/baseline,
// by turns, and the table has what that took in the place of what is known from elsewhere.
//
// With -only scale it measures clusters of simulated nodes, as make bench-scale does, and fills docs/bench-scale.md;
// with -only cluster clusters of several machines, as make bench-cluster does, and fills docs/bench-cluster.md; with
// -only net the network of a node, as make bench-net does, and fills docs/bench-net.md.
//
// It needs root, and some minutes on a machine that does nothing else.
//
// main.go has the order of what is measured, bars.go what each figure is held
// against. supervise.go runs the benchmark in a process of its own and cleans up
// behind it, however it ends. What measures is in starts.go, pods.go, idle.go,
// load.go, outside.go, custom.go, scale.go, cluster.go, servers.go, disks.go, agents.go, etcd.go, net.go, edge.go and tests.go; server.go, processes.go,
// simulated.go and api.go help them.
// The command in compare measures two commits by turns.
package main
