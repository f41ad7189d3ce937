// Package discovery makes the documents that tell clients which resources there
// are: the classic ones, a group-version at a time, and the aggregated ones. It
// also says which resources are served at all.
package discovery
