// Package patch changes objects as clients ask for it: JSON patch, merge patch
// and strategic merge patch on documents, server-side apply on objects, and the
// managed fields that record who set what.
//
// Start at [JSON], [Merge] and [Strategic] for documents and at [Fields] for
// apply and ownership. The algorithms for apply are the Kubernetes libraries'
// (managedfields, structured-merge-diff); ownership of plain writes is computed
// by code of our own, in fields_*.go, which gives the same result much faster
// (a test compares the two). Nothing here reads or stores objects.
package patch
