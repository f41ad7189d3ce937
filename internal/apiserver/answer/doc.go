// Package answer shows what a call came to over HTTP, in the form agreed on: an object,
// a list, a table, or the Status of an error ([Reply]), or the events of a watch ([Events]).
// What was asked for has been done by then; what a watch is told, and when, is said in
// package watch.
package answer
