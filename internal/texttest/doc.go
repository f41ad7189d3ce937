// Package texttest runs text tests: files that hold what a pure function is
// given and, beside it, what it is to say. They read as an index of its
// behaviour, and -update writes what it says now into them, to be read as a
// change like any other.
//
// What lives here: finding the files, those that travel in a module too, comparing,
// and the flag. What the lines of a file mean is the matter of the test. It is for
// tests only and imports no package of ours.
package texttest
