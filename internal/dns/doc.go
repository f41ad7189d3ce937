// Package dns is the cluster's DNS: CoreDNS in the process, as a Corefile says (that of the config map
// kube-system/coredns, else the one in package corefile). The plugins are CoreDNS' own, but for a
// few that plugins.go replaces (docs/decisions/046-coredns.md).
//
// answer.go is pure: a question, the rules of a Corefile (rules.go) and a view of the cluster
// in, records out. It follows the Kubernetes DNS specification 1.1.0. handler.go is the plugin
// kubernetes around it, transfer.go and metadata.go are what that is to the plugins of these
// names. corefile.go reads a Corefile into a config, server.go decides which one is in force,
// sockets.go leads questions to it, keep.go keeps it for the next start.
//
// The config map kube-system/kube-dns, if there is one, is read as well, in the words that
// kube-dns had: upstreamNameservers is a JSON list of servers, which stand for those of
// /etc/resolv.conf, stubDomains a JSON object of lists of servers by domain.
//
// What holds:
//
//	D1 The sockets stay open from one Corefile to the next, and each question is answered by
//	   one of the two, whole.
//	D2 A Corefile that cannot be read changes nothing.
//	D3 A Corefile reads no file of the machine and no variable of the process: who may change
//	   the config map has DNS, and not the node.
package dns
