// Package wasi_snapshot_preview1 stands in for the system interface of
// WebAssembly programs.
package wasi_snapshot_preview1

import (
	"context"

	"github.com/tetratelabs/wazero"
)

// Instantiate fails: there is no machine to offer the interface to.
func Instantiate(context.Context, wazero.Runtime) (any, error) { return nil, wazero.ErrAbsent }
