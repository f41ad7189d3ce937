// Package statefulset keeps the pods of StatefulSets, each with a number, a name
// and claims of its own that the next pod of that number takes over.
//
// Start at Reconcile in statefulset.go. plan.go decides what is next and status.go
// what is reported (pure: a set, its pods and claims in, what is to be done out).
// identity.go says what makes a pod the one of its number, claims.go which claims
// it has and who owns them. act.go carries a plan out.
//
//	S1 A number has one pod: its name is the pod's, and the next is made when the API has none of that name.
//	S2 What one reconcile decides on has all that the one before wrote (the runtime's barrier): no limit is used twice.
//	S3 Whatever is under way is in the API: a reconcile after a crash goes on where the pods are.
package statefulset
