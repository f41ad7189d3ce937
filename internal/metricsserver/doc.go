// Package metricsserver makes the objects of metrics.k8s.io: what nodes and pods use, of
// what their node agents have measured. Start at [Server].
//
// Nothing is asked while nobody wants to know. A node is asked when a list or a get needs
// its pods, and what it said answers all who ask within a short time. Processor time is a
// counter, so that a rate takes two looks: who asks first, or after a long time, waits
// for the second of them.
//
// How the objects are served is the business of the API server; what the agent measures,
// of package usage below kubelet. Another server may have the group: this one is then not
// asked.
package metricsserver
