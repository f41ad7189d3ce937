// Package bfd notices within fractions of a second that a neighbour on the same network, or the way to it, is dead:
// Bidirectional Forwarding Detection (RFC 5880) in asynchronous mode, over one hop (RFC 5881), without authentication,
// echoes or demands of our own.
//
//	packet   what neighbours say to each other: pure
//	machine  what one end makes of it, with the time as a value: pure
//	wire     the sockets
//	Speaker  receives for all sessions of the process, and has one with each neighbour that is watched
//
// Both ends send some packets a second once they hear each other. Who misses a few of them in a row takes the other for dead, and says so. An end that
// takes leave says that instead, which nobody takes for a failure.
//
// What holds:
//
//	F1 Nothing is believed that came by way of a router: its packets have lost a hop (RFC 5082).
//	F2 A session that was never up is no failure: the neighbour may not do BFD at all.
//	F3 Until a session is up a packet a second is sent, whatever is wanted then.
package bfd
