// Package admission changes and refuses writes beyond what a kind's own
// declaration says: by what else there is in the cluster, and by who asks.
//
// Here is what a plugin is and what it sees. Which there are, and in which order
// they are asked, stands in plugins/list.go; larger plugins have folders of their
// own, the others live beside the list. A plugin is a value with one or two
// functions. Mutate runs before the object is prepared and validated, Validate after
// it. A plugin reads from the caches and waits for nothing, except that one which is
// about to refuse for want of an object first makes sure that the cache is not
// behind ([Options].Fresh).
package admission
