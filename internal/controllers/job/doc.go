// Package job runs pods until as many as each Job asks for have succeeded.
//
// Start at Reconcile in job.go. plan.go decides what is next (pure: a job, its
// pods and the time in, a status and what is to be done out); indexes.go, policy.go
// and backoff.go are what it asks. pod.go makes pods, orphans.go frees those
// whose job is gone.
//
// Each pod that ends is counted once, whenever we are killed:
//
//	J1 A pod of a job keeps the finalizer batch.kubernetes.io/job-tracking until the stored status knows how it ended: it is there until it is counted.
//	J2 What ends is named in status.uncountedTerminatedPods (a completion index in status.completedIndexes) before it loses the finalizer.
//	J3 It is added to the counters, and loses its name there, in one write, after it lost the finalizer.
//	J4 The pods that a decision rests on are not older than the job's status: one that was counted is not seen with its finalizer again.
//	J5 That the job is to end (FailureTarget, SuccessCriteriaMet) is stored before pods are stopped for it, and that it has ended (Failed, Complete) after the last of them.
package job
