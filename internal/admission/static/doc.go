// Package static has the admission webhooks and policies that lie as files beside a server: they are in force
// before it answers anything, whatever is in the store, and nobody changes them by the API.
//
// Start at [Open]. Here is what files may say and when they are read; what webhooks and policies do is in their
// own packages, which ask for these before those of the API.
package static
