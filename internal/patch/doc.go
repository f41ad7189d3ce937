// Package patch changes objects as clients ask for it: JSON patch, merge patch
// and strategic merge patch on documents, server-side apply on objects, and the
// managed fields that record who set what.
//
// Start at [JSON], [Merge] and [Strategic] for documents, at [PartOf] for what of
// an object such a document need show, and at [Fields] for apply and ownership. The
// algorithms for apply are the Kubernetes libraries' (managedfields,
// structured-merge-diff). What nearly all writes and applies ask for is done by
// code of our own, on Go objects as package layout shows them (plan.go, diff.go,
// owners.go, apply.go), which gives the same result much faster; tests compare the
// two, and the rest is left to the library. Nothing here reads or stores objects.
package patch
