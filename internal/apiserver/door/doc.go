// Package door bounds how many connections a server has, and shares them between
// the addresses that they come from. An address may hold as many as it leaves
// free: half when alone, a third when there are two. Who opens more gets in, and
// another of that address's connections is closed for it: the oldest on which nobody is known
// yet, or, once these are less than a quarter, any other. So who opens thousands is
// mostly its own victim, and a newcomer has time to be known.
//
// The connections of the system, without which there is no cluster, count for
// nobody and are never closed.
//
// What lives here: who gets in and who has to go. Who is known, and whether as the
// system, others find out.
package door
