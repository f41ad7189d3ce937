// Package node declares the kinds of group node.k8s.io. runtimeclass.go is the
// file to copy for a new kind.
package node
