// Package announce tells the machines of a network at which of them an address is, by ARP and NDP,
// so that it can move between machines.
//
//	packet   what is said, as frames: pure
//	claim    what one machine does about one address that several may hold: pure, with the time as a value
//	wire     the sockets of a link
//	Teller   tells of an address that somebody else has decided about
//	Speaker  holds addresses of which others may take over when this machine fails
//
// An address of a Speaker is given to no link: it answers for it itself, and what arrives the service
// proxy leads on. So a process that was killed answers no more, and leaves nothing on the machine.
//
// Who holds an address is agreed on the network itself, not by the API: as long as one of those
// that are named for it lives it is answered for, whatever else is away. The machines of one cluster know each other
// by a mark in their frames, where others do not look: behind the 28 bytes of ARP, where Ethernet pads
// with zeroes, and in an option of NDP that RFC 4727 leaves for such.
//
// Invariants, cited by number in the code:
//
//	A1 Nobody answers for an address before he has asked for it, and nobody outside of the cluster has it.
//	A2 Of those named for an address that hear each other one answers: the first of the newest list that lives.
//	A3 Who holds an address and falls silent is followed within three seconds.
package announce
