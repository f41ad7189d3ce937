// Package hook calls webhooks: servers that people have registered with the cluster, to be
// asked about writes, to convert objects or to say who may do what. A webhook is at a URL or
// at a Service of the cluster, whose ready endpoints are reached without names or addresses
// of services being known to this machine.
//
// Start at [Caller.Post], and for webhooks that the server's own configuration names by a kubeconfig
// file at [Remote.Post]. What is asked, and what follows from an answer or from none, is
// for the callers, and so is how long they wait: by their contexts.
//
// Invariants, cited by number in the code:
//
//	K1 A webhook is believed by its own CA bundle, if it has one, under the name of its Service or its URL's host alone.
//	K2 An answer takes no more memory than [MaxAnswer], and leads nowhere else: redirects are not followed.
//	K3 Nothing is kept of webhooks that nobody calls any more, but for a bounded number of empty pools of connections.
package hook
