// Package core declares the kinds of the core group, v1: one file a kind, split
// by a suffix where it is large (pod.go, pod_update.go, pod_status.go ...).
//
// What is in a pod's spec is filled and checked by podspec, single fields by
// check; what kinds with a pod template have in common is in workload. Besides
// the declarations this package holds the pure functions about pods, services
// and nodes that other packages share: [PodReady], [QOSClass], [PodRequests] and
// their like. No I/O lives here, and no knowledge of other groups' kinds.
package core
