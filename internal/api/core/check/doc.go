// Package check has the checks of single fields that the kinds of the core
// group share, and what fills such fields. Each check adds to errs what is wrong
// with the value at a path; nothing here knows a kind.
package check
