// Package seal is a store whose values are encrypted, each in the form that upstream's
// API servers give it, so that either can read what the other has written.
//
// Start at [Store]: it lies over another store, and encrypts what is written and opens what is read as
// its [Rules] say, by the keys of the store. A [Chain] is what they say of one resource: the first of its
// providers writes, all of them read. What a configuration file says, and how a plugin is spoken to, is not
// known here.
//
// Invariants, cited by number in the code:
//
//	E1 A value that cannot be opened spoils nothing but itself: its KV has an Err, and no bytes of it.
//	E2 A value is authenticated together with its key, where the form has that: it is good nowhere else.
//	E3 A data key is given to others only after it has opened a value: a plugin that lies is asked again.
//	E4 Neither values nor keys are in errors, logs or metrics.
package seal
