// Package answer shows what a call came to over HTTP, in the form agreed on: an object,
// a list, a table, or the Status of an error ([Reply]). What was asked for has been done
// by then. Watches, which go on, are not answered here.
package answer
