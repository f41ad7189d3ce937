// Package node decides what a node agent may do. A stolen agent must not lay
// open the whole cluster, so an agent reads only what the pods bound to its node
// refer to, beside the secrets of Ingresses that the edge of every node shows, and writes only
// its own node, lease and CSINode.
//
// What pods refer to is found when it is asked for, from the pods of the one
// node by an index of the cache: there is no graph to keep up.
package node
