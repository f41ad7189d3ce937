// Package podautoscaler is the controller of HorizontalPodAutoscalers: every period it asks
// what the pods of a target use, and sets how many there should be by the target's scale
// subresource.
//
// replicas.go says how many pods one metric wants, behavior.go how fast that may be
// followed: these are pure. metrics.go asks for the metrics, target.go reads and writes the
// scale, and look.go ties them together, with question.go for each kind of metric.
//
// Who measures is not known here: resources are asked for as metrics.k8s.io, all else as
// custom.metrics.k8s.io and external.metrics.k8s.io, whoever serves them.
//
// Invariants, cited by number in the code:
//
//	H1 An autoscaler is looked at when it is new or its spec is, and once a period, whatever else changes: a look is a sample of its windows.
//	H2 What cannot be known never takes pods away.
//	H3 The wanted number is within minReplicas and maxReplicas, or the target is left alone.
package podautoscaler
