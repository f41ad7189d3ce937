// Package requirements carries the requirement catalogue, the markdown files
// beside it, into Go programs. It holds no logic: package trace reads the
// files, checks the IDs that tests cite, and writes the coverage report.
package requirements

import "embed"

// Files are the catalogue's markdown files. See README.md for their form.
//
//go:embed *.md
var Files embed.FS
