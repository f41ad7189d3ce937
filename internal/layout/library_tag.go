//go:build library

package layout

// Library is true: see the file for builds without the tag.
const Library = true
