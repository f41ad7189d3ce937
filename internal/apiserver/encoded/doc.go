// Package encoded keeps the bytes that cached objects are sent as, so that each
// is made once and not for every reader.
//
// Start at [Store]. Bytes made lately are kept as they are. When there are too
// many, the oldest are packed: written as references into a dictionary of
// objects of the same kind, which resemble each other, so that ten thousand
// pods take a few megabytes and a list of them is little more than copying. What
// does not fit even so is forgotten and made again when it is asked for.
//
// Invariants, cited by number in the code:
//
//	E1 Bytes that were handed out are never changed; a dictionary never is.
//	E2 An encoding is of one Item for ever: nothing is ever out of date.
//	E3 Only what is still the newest state of its object is packed.
package encoded
