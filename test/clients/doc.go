// Package clients proves the API as its clients see it: the real kubectl and
// client-go against a whole control plane in this process (memory store,
// controllers, scheduler, simulated nodes), over HTTPS on a loopback port, in
// real time and without root.
//
// There is nothing but tests here. Most are transcripts in testdata: command
// lines and what they must print; script_test.go explains the form. They share
// one server and run side by side, each in a namespace of its own name, so that
// a transcript must not change what is not in it. -update writes what was printed
// into transcripts that fail: read the change before you believe it.
package clients
