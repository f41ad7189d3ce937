// Package signer speaks to who signs the tokens of service accounts outside of the process (KEP-740): a
// program behind a Unix socket, which has the keys and says by which of them tokens are good.
//
// signer.go is the connection and the signing, keys.go the keys that are believed, and how they stay up to date: [Signer].
//
// Invariants, cited by number in the code:
//
//	S1 Each call has an end: a signer that is silent holds up nobody for longer than [within], and a start for no longer than [startWithin].
//	S2 Keys are asked for by [Signer.Run] alone, one call at a time, however many tokens bear IDs that are not known.
//	S3 An answer that cannot be used changes nothing: the last good keys stay in force, and a metric and the log say so.
package signer
