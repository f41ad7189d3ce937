// Package dns is the cluster's DNS: CoreDNS in the process, with a plugin of our
// own that answers for the cluster's names from the caches, and CoreDNS' cache and
// forward plugins for everything else.
//
// answer.go is pure: a question and a view of the cluster in, records out. It
// follows the Kubernetes DNS specification 1.1.0. server.go runs it, upstream.go
// sends on what is not about the cluster.
//
// The config map kube-system/kube-dns, if there is one, says where to, in the
// words that kube-dns had for it: upstreamNameservers is a JSON list of servers,
// stubDomains a JSON object of lists of servers by domain. A change is followed
// at once.
package dns
