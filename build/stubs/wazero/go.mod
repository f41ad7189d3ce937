// What containerd's interface to NRI plugins names of wazero, without a machine
// to run WebAssembly in: see docs/decisions/014-stand-ins.md.
module github.com/tetratelabs/wazero

go 1.26.6
