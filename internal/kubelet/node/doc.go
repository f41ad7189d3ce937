// Package node keeps a Node in the API as it is: it registers the node, renews its
// lease, and writes what it has and how it is. Start at [Node.Run].
//
// What the pressure on the node is, and what follows from it for pods, is the
// business of others; they tell, and are told, by methods.
package node
