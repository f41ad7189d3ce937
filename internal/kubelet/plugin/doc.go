// Package plugin finds the plugins of a node: programs of others, in pods as a rule, that
// make volumes and devices. Each shows a socket in one directory of the node, which serves
// pluginregistration.v1; it is asked who it is, handed to who takes plugins of its type, and told
// what became of it.
//
// Start at [Watch]. What a plugin is asked after that is the business of its [Handler].
//
// Invariants, cited by number in the code:
//
//	G1 What one plugin does, or does not answer, holds up no other.
//	G2 A handler hears of one socket in order: that it is gone before it hears of the one made anew in its place.
//	G3 The end of the agent deregisters nothing: plugins, and what they made, outlive it.
package plugin
