// Package metrics declares the resources of the API group metrics.k8s.io: what nodes and
// pods use. They are computed; who measures and who is asked is not known here.
package metrics
