// Package endpointslice keeps, for every Service with a selector, slices of the
// addresses of its pods.
//
// Start at Reconcile in endpointslice.go. plan.go (pure) decides how slices
// change: endpoints stay in the slice they are in, so that watchers see as
// little change as possible.
package endpointslice
