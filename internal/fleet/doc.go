// Package fleet is further machines of a cluster on the machine of its first server: servers and agents,
// each in a network namespace of its own, with its own data, joined by a bridge as
// machines are by a switch. It is for people who try out a cluster of several machines,
// and for tests; what runs in them is the same program as on real ones.
//
// Start at [Fleet]. How a process is started and stopped is package up's; what an agent
// does is package cluster's.
package fleet
