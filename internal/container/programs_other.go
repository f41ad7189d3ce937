//go:build !amd64 && !arm64

package container

import "embed"

// build/runtime knows no other machines: a kemudi for them has no container runtime.
var programs embed.FS
