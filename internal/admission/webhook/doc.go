// Package webhook is the plugins MutatingAdmissionWebhook and ValidatingAdmissionWebhook: they
// ask the servers that people have registered about writes.
//
// Start at [New]. Which writes a webhook is for is said by package match, how it is called by
// package hook; what it is asked, what its answer may be and what follows from none is here.
//
// Invariants, cited by number in the code:
//
//	A1 Without configurations a write costs one look at an empty cache; with some, what they say is read anew only when they change.
//	A2 A write is told of a configuration that was answered before it: who has written one waits until the caches here show it.
//	A3 A webhook that fails, hangs or lies harms the writes that it is for alone, and these no longer than its timeout.
//	A4 What a mutating webhook has made of an object is looked at as if the client had sent it: defaulted, pruned and, in the end, validated.
package webhook
