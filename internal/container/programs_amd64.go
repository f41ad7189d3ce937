package container

import "embed"

//go:embed embedded/amd64
var programs embed.FS
