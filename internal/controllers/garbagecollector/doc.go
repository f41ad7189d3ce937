// Package garbagecollector deletes objects whose owners are gone, and carries
// out foreground deletion and orphaning.
//
// It keeps no graph of its own: the caches of all resources, with their index of
// owners, are the graph. A key names one object of any resource; an object is
// looked at when it changes and when one of its owners does.
//
// Start at look in collect.go.
package garbagecollector
