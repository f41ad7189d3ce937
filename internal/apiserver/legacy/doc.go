// Package legacy notes who still calls versions of the API that are deprecated, or that are turned
// off: which, when last, by which program and from where. It is kept over restarts in a ConfigMap of
// each server.
//
// Invariants, cited by number in the code:
//
//	L1 Nothing is kept, read or written before the first such call.
//	L2 What is kept is bounded: the callers that have called the longest time ago are forgotten.
//	L3 A caller that is new is written after some seconds, with others; that it calls again, every quarter of an hour and when the server ends.
package legacy
