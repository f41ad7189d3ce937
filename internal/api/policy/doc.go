// Package policy declares the resources of the API group policy: PodDisruptionBudgets.
// Evicting is the API server's work.
package policy
