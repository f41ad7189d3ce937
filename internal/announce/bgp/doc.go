// Package bgp tells the routers of a network by BGP (RFC 4271) which addresses lead to this machine,
// each as a route of its own: /32 or /128. It takes no routes of them.
//
//	peer      what people say of a router
//	message   what is said to it, in the messages of gobgp: pure
//	session   one connection to it, from its opening to its end
//	Speaker   keeps a session with each router, and says what is to be announced
//
// A Speaker connects and is not connected to: it listens to no port, but for that of BFD where a router is watched by it.
// Who has the routes forgets them when the session ends, be it in order, by a process that was killed (the kernel ends the
// connection), or by a machine that has lost its power (nothing is heard for the hold time, or by BFD for less than a
// second). Only a router that is asked to (Peer.Restart) keeps them for a while when the connection ends without a word: the
// kernel leads packets on while no process does anything.
package bgp
