// Package admission changes and refuses writes beyond what a kind's own
// declaration says: by what else there is in the cluster, and by who asks.
//
// Start at list.go: the plugins in the order in which they are asked. A plugin
// is a value with one or two functions. Mutate runs before the object is
// prepared and validated, Validate after it. A plugin reads from the caches and
// waits for nothing, except that one which is about to refuse for want of an
// object first makes sure that the cache is not behind ([Options].Fresh).
package admission
