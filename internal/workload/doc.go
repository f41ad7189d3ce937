// Package workload is what controllers of workloads share: pods made from
// templates and made side by side, which pods are active and when they become
// available, which go first, and the history of templates that DaemonSets and
// StatefulSets keep ([History]).
//
// What a single controller decides stays with it. What every controller needs,
// whatever it is about, is the runtime's: package controller.
package workload
