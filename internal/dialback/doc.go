// Package dialback is how servers reach nodes that they cannot connect to: each
// agent keeps a connection of its own to every server, the tunnel, and servers
// open connections through it.
//
//	server                                                node
//	Registry.Dial --- HTTP/2, a stream a connection ---> Agent --- TCP ---> node agent, pods
//	          ^                                            |
//	          +-- HTTPS: GET Path(node), Upgrade: kemudi-tunnel/1 --+
//
// The agent asks for the tunnel by its node's certificate, as any request to the
// API. After the upgrade the parts are changed: the server is HTTP/2's client,
// and asks by CONNECT for what the agent is to connect to. Why HTTP/2, and what
// it does not carry: docs/decisions/030-tunnels-to-nodes.md.
//
// Start at [Registry] on the server's side and at [Agent] on the node's. Neither
// knows of objects of the API: who may open a tunnel has been found out before,
// and what a server may ask for is said by [Scope]. What goes through a tunnel
// proves itself as it would without: a tunnel is a way, and no right.
//
// Invariants, cited by number in the code:
//
//	T1 An agent connects to its own node's agent and its own pods, to nothing else, whatever a server asks for.
//	T2 A node has one tunnel to a server, by whichever of its names: a new one ends the one before, unless the agent says that it is good.
//	T3 A stream that nobody reads holds up its own sender, and no other stream.
//	T4 An end that has gone without a word is noticed, and all that waits for it is told.
//	T5 Without streams a tunnel costs its connection and two goroutines at each end.
package dialback
