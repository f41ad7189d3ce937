// Package fakecri is a container runtime in memory: it keeps sandboxes and
// containers, lets "processes" run for as long as they should, and tells about
// every change, as a real one does through CRI. It serves the node agent's tests,
// in virtual time, so it starts no goroutine, opens no socket and costs nothing
// while nothing happens. The nodes of a simulated cluster are not agents:
// docs/decisions/018-simulated-nodes.md.
//
// What a container does is decided by [Program], from its image and command.
package fakecri
