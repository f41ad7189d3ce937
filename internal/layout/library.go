//go:build !library

package layout

// Library is true in a program built with the tag "library" (go build -tags
// library): who reads values by their layout leaves that to the libraries, so that
// one can see whether a fault is in our way of reading.
const Library = false
