// Package scheduling declares the resources of the API group scheduling.k8s.io: PriorityClasses.
package scheduling
