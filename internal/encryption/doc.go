// Package encryption is what --encryption-provider-config says: which resources lie encrypted in the store,
// and by what. It reads that file, again when it changes, speaks to the plugins that it names, and writes
// anew what lies there otherwise.
//
// Start at [Keeper]. Its [Keeper.Rules] are for package seal, which encrypts.
//
// Invariants, cited by number in the code:
//
//	E5 A file that cannot be used changes nothing: the last good one stays in force, and a metric and the log say so.
//	E6 A plugin that is silent holds up nobody for longer than its timeout, and not twice for one data key.
//	E7 What is written anew is compared and set: whoever is faster wins, and what is cut off goes on where it was.
package encryption
