// Package etcd is the durable store: an etcd server inside the process, spoken
// to by function calls, with no socket open unless asked for. [New], then Run;
// the Server is a store.Store as soon as Ready.
//
// A single member leads at once: rather than wait for its election timer, it is
// told to stand for election as soon as it has read its log.
//
// [Server.SetPeer] makes it one that others can join: [Server.AddLearner], a Server with
// Options.Join elsewhere, [Server.Promote]. Callers wait while its etcd is opened anew with
// other timers. Each member takes reads and writes; without a majority they are answered
// with store.ErrNoMajority. A [Remote] keeps the store in etcds that others run.
//
// Nothing is written while the store is idle. History older than five minutes
// is compacted away; a compaction happens only if something was written.
//
// Writes and feeds, of which there are many, ask the server's own methods; what is
// rare asks by way of etcd's client.
//
// What lives here: the server's life and settings, the store's methods, leases for
// keys with a time to live. What must not: anything that knows what keys mean.
package etcd
