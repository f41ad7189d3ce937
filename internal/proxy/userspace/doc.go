// Package userspace carries connections to Services through the process, as the first service proxy did
// (--proxy-mode=userspace): for each port of TCP of a Service it listens at a port of the machine, and connects who comes
// with one of the endpoints, with another if that does not answer. Node ports are carried so where the kernel cannot lead
// them (::1). Start at [Relays.Open]. Who leads connections to
// the ports is package proxy.
//
// Invariants, cited by number in the code:
//
//	U1 A connection is given to another endpoint only before a byte of it was carried.
//	U2 Endpoints that come and go end no connection.
package userspace
