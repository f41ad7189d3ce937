// Package worker is a machine that runs pods: container runtime, node agent, pod
// network, service proxy and DNS, wired in start order. It is alike in a server and in
// a process that is nothing else.
//
// Start at Start in worker.go. All that the parts ask of the API goes over one
// transport, as the node itself: what a node may not do is a controller's.
//
// What a worker changes on the machine is undone by [Removers], which needs no worker.
package worker
