// Package client is how everything above the API talks to it: typed requests
// and shared caches over any transport. On a server the transport calls the API
// server's verbs in process (same authentication result, authorization,
// admission and validation, but no bytes and no sockets); on an agent it is
// HTTPS with protobuf.
//
// Start at [Transport], then [For] (requests) and [Cached] (reads from the
// process's one cache). [Recorder] writes Events.
//
// Objects that come out of a client or a cache are shared and read-only: make a
// DeepCopy before changing one. Objects given to Create or Update are handed
// over: the caller must not touch them afterwards.
package client
