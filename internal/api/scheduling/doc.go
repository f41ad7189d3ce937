// Package scheduling declares the resources of the API group scheduling.k8s.io: PriorityClasses, and groups of pods that are placed together, with their templates.
package scheduling
