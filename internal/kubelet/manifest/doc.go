// Package manifest reads the pods that a node runs without the API: the manifests
// in a directory, or at a URL. Start at [Dir.Load].
package manifest
