// Package fence makes the writes of a leader depend on the value that made it one: a
// process that has lost its lease, whether it knows or not, can write nothing.
//
// A [Hold] is what a leader has: a key of the store, and how to tell whether its value
// still says so. [With] puts it into the context of everything that the leader does, and
// a [Store] adds it to the conditions of each transaction from such a context. Who is alone with
// the store holds nothing yet: that changes by [Hold.Take] while it writes. Who leads,
// and for how long, is decided by package leader; nothing here knows what the value is.
package fence
