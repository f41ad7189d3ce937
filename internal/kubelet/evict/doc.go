// Package evict decides which pods must leave a node, and why: those that use
// more local storage than they may, and some of the others when memory or disk
// of the node run out. Start at [Monitor.Observe] and [OverLimit].
//
// Here are decisions only; package kubelet measures and acts.
package evict
