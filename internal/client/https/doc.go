// Package https is the API as a process on another machine reaches it: a
// [client.Transport] that speaks HTTP/2 with TLS to one of the API servers of a cluster,
// protobuf for every kind that has it, and keeps caches fed by list and watch.
//
// Start at [New] and [Transport.Run]; feed.go is how a cache stays right, servers.go
// which server is asked, and look.go when it is left for another one. What is known
// when there is none is in memory.go, and who is believed in cluster.go. It
// knows nothing of who the caller is: certificates and tokens are functions
// that are asked again for each request, or come from a program (plugin.go). Nor does it find out which servers
// there are: see [Transport.SetServers].
//
// Invariants, cited by number in the code:
//
//	H1 A cache shows every change once, in order, whatever happens to the connection and the servers; it never goes back.
//	H2 A change is passed over only if the cache shows it already.
//	H3 A watch resumes only after a revision that was delivered as a whole.
//	H4 A request that may have been carried out is not sent again, unless it only reads.
//	H5 One server is asked as long as it works. It is left at once if it cannot be reached or sends the client away, and if it hangs, for one that answers.
//	H6 Who has a memory believes no servers of another cluster, and none that are at an earlier state than they were: caches stay as they are.
package https
