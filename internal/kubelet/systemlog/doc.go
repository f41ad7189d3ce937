// Package systemlog serves the machine's own logs: the files of a directory, and, where that is wanted, what is asked
// of them by ?query= (KEP-2258). Start at [Logs.Handler].
//
// A query names services, whose lines are in the machine's journal or else in files that are called after them, or
// one file. Nothing outside of the directory is read, whatever links are in it: containers may write there.
package systemlog
