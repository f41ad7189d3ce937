// Package apps declares the resources of the API group apps: Deployments,
// ReplicaSets, StatefulSets, DaemonSets and ControllerRevisions, one file a kind.
// Pod templates are checked by core/podspec, and what these kinds share with Jobs
// and ReplicationControllers is in core/workload; what a controller does is not here.
package apps
