// Package plugins is what the scheduler asks of a node before it puts a pod
// there, and what it prefers: one file a plugin, each with the few small
// interfaces of plugin.go that it needs. list.go gives their order.
//
// Plugins decide from a [snapshot.Snapshot] alone: no I/O, no clock (but for how long a claim has waited
// for its devices, which another process may have begun), no chance.
// A plugin may keep notes about the pod at hand between its PreFilter and the
// last Filter or Score, so a [Set] belongs to one goroutine, like its snapshot.
// Filter reads the snapshot as it is at the call: whoever asks "what if" changes
// the snapshot and calls Filter again.
package plugins
