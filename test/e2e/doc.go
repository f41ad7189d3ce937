// Package e2e proves the product as a whole: it starts the built program on a
// machine of its own (a network namespace with own directories), lets real
// containers run there, and drives it with the unmodified kubectl, HTTP and
// signals, as people do.
//
// There is nothing but tests here. They need root and the programs embedded in
// kemudi (make runtime), and are skipped without. Each machine is reset at its
// end, and the test fails if anything of it is left on the host; a process
// beside the test does the same if the test itself is killed.
//
// A test waits for what must come about, never for a time to pass, and its patience
// only ends hangs: it must pass on a machine that does ten other things. A server
// that was never killed must not have warned of anything but a slow disk, whatever
// the tests asked of it.
//
//	KEMUDI_BIN  the program to test; default: built from this tree
package e2e
