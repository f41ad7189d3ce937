// Package coordination declares the resources of the API group coordination.k8s.io: Leases, the
// heartbeats and locks of everything that runs in a cluster.
package coordination
