// Package https is the API as a process on another machine reaches it: a
// [client.Transport] that speaks HTTP/2 with TLS to an API server, protobuf for
// every kind that has it, and keeps caches fed by list and watch.
//
// Start at [New] and [Transport.Run]; feed.go is how a cache stays right. It
// knows nothing of who the caller is: certificates and tokens are functions
// that are asked again for each request.
//
// Invariants, cited by number in the code:
//
//	H1 A cache shows every change once, in order, whatever happens to the connection and the server.
//	H2 A change is passed over only if the cache shows it already.
//	H3 A watch resumes only after a revision that was delivered as a whole.
//	H4 A request that may have been carried out is not sent again, unless it only reads.
package https
