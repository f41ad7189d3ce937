// Package wazero stands in for a WebAssembly machine: it has the types by which
// containerd calls NRI plugins that are WebAssembly, and can run none. Kemudi
// loads no NRI plugins at all.
package wazero

import (
	"context"
	"errors"

	"github.com/tetratelabs/wazero/api"
)

// ErrAbsent answers whoever wants to run something.
var ErrAbsent = errors.New("WebAssembly is not supported by this build")

// Runtime is a machine.
type Runtime interface {
	NewHostModuleBuilder(name string) HostModuleBuilder
	CompileModule(ctx context.Context, binary []byte) (CompiledModule, error)
	InstantiateModule(ctx context.Context, compiled CompiledModule, config ModuleConfig) (api.Module, error)
	Close(ctx context.Context) error
}

// CompiledModule is a program, ready to run.
type CompiledModule interface {
	Close(ctx context.Context) error
}

// HostModuleBuilder offers functions of the host to programs.
type HostModuleBuilder interface {
	NewFunctionBuilder() HostFunctionBuilder
	Instantiate(ctx context.Context) (api.Module, error)
}

// HostFunctionBuilder describes one of them.
type HostFunctionBuilder interface {
	WithGoModuleFunction(fn api.GoModuleFunction, params, results []api.ValueType) HostFunctionBuilder
	WithParameterNames(names ...string) HostFunctionBuilder
	Export(name string) HostModuleBuilder
}

// RuntimeConfig says how a machine behaves.
type RuntimeConfig struct{}

// NewRuntimeConfig is the default.
func NewRuntimeConfig() RuntimeConfig { return RuntimeConfig{} }

// WithCloseOnContextDone changes nothing.
func (c RuntimeConfig) WithCloseOnContextDone(bool) RuntimeConfig { return c }

// ModuleConfig says how a program starts.
type ModuleConfig struct{}

// NewModuleConfig is the default.
func NewModuleConfig() ModuleConfig { return ModuleConfig{} }

// WithStartFunctions changes nothing.
func (c ModuleConfig) WithStartFunctions(...string) ModuleConfig { return c }

// NewRuntime returns a machine that runs nothing.
func NewRuntime(context.Context) Runtime { return absent{} }

// NewRuntimeWithConfig returns a machine that runs nothing.
func NewRuntimeWithConfig(context.Context, RuntimeConfig) Runtime { return absent{} }

// absent is the machine, and what offers it the host's functions.
type absent struct{}

func (absent) NewHostModuleBuilder(string) HostModuleBuilder { return absent{} }
func (absent) NewFunctionBuilder() HostFunctionBuilder       { return absent{} }
func (absent) WithParameterNames(...string) HostFunctionBuilder {
	return absent{}
}
func (absent) WithGoModuleFunction(api.GoModuleFunction, []api.ValueType, []api.ValueType) HostFunctionBuilder {
	return absent{}
}
func (absent) Export(string) HostModuleBuilder                 { return absent{} }
func (absent) Instantiate(context.Context) (api.Module, error) { return nil, ErrAbsent }
func (absent) CompileModule(context.Context, []byte) (CompiledModule, error) {
	return nil, ErrAbsent
}
func (absent) InstantiateModule(context.Context, CompiledModule, ModuleConfig) (api.Module, error) {
	return nil, ErrAbsent
}
func (absent) Close(context.Context) error { return nil }
