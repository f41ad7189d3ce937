// Package nettest makes small networks of Linux network namespaces for tests:
// named "hosts" joined by veth pairs and bridges, with functions, servers and
// clients that run inside them. Everything it makes goes away with the test,
// also when it fails.
//
// It needs root; [New] skips the test without. It knows links, addresses and
// sockets only; what the product does to a host is tested with it, not in it.
package nettest
