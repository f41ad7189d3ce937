// Package objects finds the objects of the API that the pods of a node refer to: config
// maps, secrets, trust bundles, certificates of pods, services and runtime classes. It tells who uses one when it changes.
//
// Start at [Objects.In] and [Objects.Follow]. What comes of a change is the
// business of the pod.
package objects
