// Package api has what a WebAssembly program and its host see of each other.
package api

import "context"

// ValueType is the type of a parameter or result.
type ValueType = byte

// The types of whole numbers.
const (
	ValueTypeI32 ValueType = 0x7f
	ValueTypeI64 ValueType = 0x7e
)

// Module is a program that runs.
type Module interface {
	Memory() Memory
	ExportedFunction(name string) Function
}

// Memory is what a program can address.
type Memory interface {
	Size() uint32
	Read(offset, size uint32) ([]byte, bool)
	Write(offset uint32, data []byte) bool
}

// Function is one that a program exports.
type Function interface {
	Call(ctx context.Context, params ...uint64) ([]uint64, error)
}

// GoModuleFunction is one that the host offers.
type GoModuleFunction interface {
	Call(ctx context.Context, m Module, stack []uint64)
}

// GoModuleFunc makes a GoModuleFunction of a function.
type GoModuleFunc func(ctx context.Context, m Module, stack []uint64)

// Call calls it.
func (f GoModuleFunc) Call(ctx context.Context, m Module, stack []uint64) { f(ctx, m, stack) }
