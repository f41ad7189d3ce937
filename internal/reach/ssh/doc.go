// Package ssh is the way to nodes by SSH: a server logs in to a node's SSH server, with
// one key for all nodes, and has it connect to the node's agent and pods. It is for
// networks between servers and nodes that nobody trusts, as the documents have it.
//
// Start at [Tunnels]. Which way is taken to a target is package reach's to say; what an
// SSH connection is made of, the library's.
package ssh
