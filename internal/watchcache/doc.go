// Package watchcache keeps the caches of a server: all objects of all
// resources, decoded once from the store, fed by one watch.
//
// Start at [Set]. [Encode] and [Decode] are the form of a stored object, which
// is upstream's: protobuf in an envelope that begins with "k8s\x00", or JSON.
// Objects written by an older server may be of a legacy version: they are
// converted as they are read.
//
// Invariants, cited by number in the code:
//
//	W1 An object in a cache has its revision as its resourceVersion; a stored one has none.
//	W2 Progress passes a revision after all caches have taken in its changes.
//	W3 A value that cannot be read spoils only itself: it is passed over, told of once in the log, and refused to who asks for it.
//	W4 An object handed over by its writer is used only for the very bytes that were written.
package watchcache
