// Package apiserver is the Kubernetes API: generic over the resources that
// package resource declares, over HTTP for the world and by plain calls for the
// other parts of the process.
//
// Start at verbs.go, the one table of what can be done, by HTTP (http_resource.go) and
// from within (local.go). filters.go lists what every HTTP request passes through, in
// order. From there on, each in a package of its own: call is what is asked for; write
// carries a write from the call to a committed revision, top to bottom; read serves
// reads from the caches of package watchcache, and watch.go watches; answer shows over
// HTTP what came of it. [Server.Handler] is the way in for HTTP, [Server.As] for the
// same process. What the audit is told of both stands in audit.go. Subresources and questions that are more than a read-merge-write are
// in package action, connections to nodes and pods in package tunnel; handlers.go hands
// both what they may ask for. What objects look like as bytes is in package wire, and
// kept by package encoded. Who may do what, and what the kinds mean, is not decided here.
//
// Invariants, cited by number in the code:
//
//	A1 Objects in a cache, and the bytes made of them, are never changed.
//	A2 A write commits only on top of the revision its author or its merge saw.
//	A3 A read without resourceVersion shows every write that was answered before it began.
//	A4 What HTTP clients and in-process clients may do, what becomes of it, and what the audit is told, is the same.
//	A5 No goroutine outlives the request or the Run that it works for.
package apiserver
