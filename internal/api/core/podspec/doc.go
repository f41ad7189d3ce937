// Package podspec fills and checks the specification of a pod, which is in pods
// and in the templates of every workload kind, and the volumes and claims that
// are parts of it. What only a pod is, as an object with a status, is in core.
//
// Start at default.go and validate.go; container_*.go, volume_*.go,
// security*.go and scheduling.go hold the parts.
package podspec
