// Package extender calls the programs that have a say in scheduling over HTTP:
// upstream's scheduler extenders, with its four verbs filter, prioritize, bind
// and preempt and the bodies of k8s.io/kube-scheduler/extender/v1.
//
// What lives here: one call, what is wrong with an answer, and who is asked about
// which pod. When extenders are asked, and what becomes of their answers, is the
// scheduler's (extend.go there).
package extender
