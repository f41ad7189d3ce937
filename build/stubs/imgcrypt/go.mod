// What containerd's CRI plugin names of imgcrypt, without the cryptography: see
// docs/decisions/014-stand-ins.md.
module github.com/containerd/imgcrypt/v2

go 1.26.6

require (
	github.com/containerd/containerd/v2 v2.4.2
	github.com/opencontainers/image-spec v1.1.1
)
