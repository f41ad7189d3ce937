// Command baseline serves a few kinds with upstream's server library, so that
// test/bench can put the same load on it as on Kemudi: k8s.io/apiserver with its
// registry and watch cache, on an etcd of the same version in the same process.
//
// It takes the commands and flags of kemudi that the benchmark uses, writes the
// administrator's kubeconfig to the same place, and reports in the same way that
// it is ready. What Kemudi does besides for each request, it does not: there are
// no admission plugins, no controllers, no validation and no defaults, objects
// have one form inside and outside, and who asks is known by a token. Its figures
// are therefore the least that a server made of this library needs.
//
// main.go has the commands, server.go the server and its etcd, scheme.go the forms
// of objects, registry.go what is served and how it is stored. Nothing of it is
// part of Kemudi, nor of its tests.
package main
