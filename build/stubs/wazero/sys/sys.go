// Package sys has how a WebAssembly program ends.
package sys

// ExitError is the end of a program that called exit.
type ExitError struct{}

// ExitCode is what it called it with.
func (*ExitError) ExitCode() uint32 { return 1 }

func (*ExitError) Error() string { return "the module has ended" }
