// Package policy asks admission policies about writes: ValidatingAdmissionPolicies refuse them
// (validate.go), MutatingAdmissionPolicies change them (mutate.go).
//
// A policy does something where a binding puts it in force. Those that are in force are kept
// compiled ([set]), each once for every change of it, by who comes to need it first: nothing runs in the
// background, and without bindings a write costs a look at two counters. Params are looked up when a write asks
// for them, in the cache of whatever kind they are of.
//
// What an expression may say is the affair of cel/request, and which writes are meant that of
// admission/match. Policies are not asked about policies, bindings and webhooks, nor about questions of who
// somebody is and what he may do: who has locked himself out must get in again.
package policy
