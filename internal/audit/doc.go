// Package audit tells what the API is asked: by whom, from where, about what, and what
// came of it, in events of audit.k8s.io/v1.
//
// [Log] decides by the policy (policy.go, match.go) what of a request is told, and has
// the backends told: the file of sink_file.go, which file.go turns over, the webhook of
// sink_webhook.go, or both. What stands before these, where people ask for it, is in
// batch.go and truncate.go. [Request] is what is told of one request, stage by stage; requests are
// made and led through their stages by package apiserver, for callers by HTTP and from
// within the process alike. What is read and answered is not known here but as JSON.
//
// Invariants, cited by number in the code:
//
//	U1 Without a policy or a backend there is no Log and no Request: the methods of nil do
//	   nothing, so that a server which does not audit pays nothing.
//	U2 An event is as the request was at its stage: nothing changes it after.
//	U3 A line of the file is one event, whole, however the process ends.
//	U4 What is not told is counted, by the backend that has lost it.
package audit
