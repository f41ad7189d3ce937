// Package static runs the pods of manifests: what files of a directory say is run by
// the node whether the API is there or not, and has a mirror in it. Start at [Pods.Run].
//
// Which pods a file means is package manifest's business; how they run, and what their
// mirrors show, that of package pod.
package static
