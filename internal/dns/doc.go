// Package dns is the cluster's DNS: CoreDNS in the process, with a plugin of our
// own that answers for the cluster's names from the caches, and CoreDNS' cache and
// forward plugins for everything else.
//
// answer.go is pure: a question and a view of the cluster in, records out. It
// follows the Kubernetes DNS specification 1.1.0. server.go runs it.
package dns
