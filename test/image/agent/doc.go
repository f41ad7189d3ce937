// Command agent is the one program of the test images: a set of small servers
// and probes that pods are tested with. It imitates the sub-commands of the
// image that the conformance tests use (same names, flags, ports and answers),
// and adds web, the server of the example application.
//
// What lives here: behaviour that a test looks at from outside a container. It
// imports nothing of the product, because it runs where the product is not.
package main
