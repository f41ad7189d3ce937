package container

import "embed"

//go:embed embedded/arm64
var programs embed.FS
