#!/bin/sh
# Builds the programs that travel inside kemudi and packs them into
# internal/container/embedded. Does nothing when nothing changed.
#
#   GO      the go command (go)
#   GOARCH  the machine to build for; needs CC for another one than this
#   OUT     where to pack to (internal/container/embedded)
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
GO=${GO:-go}
CC=${CC:-gcc}
OUT=${OUT:-$root/internal/container/embedded}
GOARCH=${GOARCH:-$($GO env GOARCH)}
# The flags of the Makefile, so that what kemudi imports, too, is compiled once.
export GOARCH GOWORK=off GOFLAGS="-mod=readonly -buildvcs=false -trimpath" CGO_ENABLED=0
step=$root/build/step.sh

cd "$here"
stamp=$({ cat go.mod go.sum build.sh imports.go shim/* pause/* pack/*; $GO version; echo "$GOARCH $CC"; } | sha256sum | cut -d' ' -f1)
if [ "$(sed -n 's/^stamp //p' "$OUT/manifest" 2>/dev/null)" = "$stamp" ]; then
	exit 0
fi

missing=
command -v "$CC" >/dev/null || missing="$missing gcc libc6-dev"
command -v pkg-config >/dev/null || missing="$missing pkg-config"
[ -e /usr/include/seccomp.h ] || missing="$missing libseccomp-dev"
if [ -n "$missing" ]; then
	echo "runtime: installing$missing"
	{ apt-get install -y --no-install-recommends $missing ||
		{ apt-get update && apt-get install -y --no-install-recommends $missing; }; } >/dev/null
fi

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
# The shim speaks ttrpc alone: without gRPC, as containerd builds its own, it needs neither HTTP nor TLS.
"$step" "building the shim" $GO build -tags no_grpc -ldflags "-s -w" -o "$tmp/containerd-shim-runc-v2" ./shim
"$step" "building the CNI plugins" $GO build -ldflags "-s -w" -o "$tmp/" \
	github.com/containernetworking/plugins/plugins/main/bridge \
	github.com/containernetworking/plugins/plugins/ipam/host-local
"$step" "building runc" env CGO_ENABLED=1 CC=$CC $GO build -tags "seccomp netgo osusergo urfave_cli_no_docs" \
	-ldflags "-s -w -linkmode external -extldflags -static" \
	-o "$tmp/runc" github.com/opencontainers/runc
"$step" "building pause" $CC -Os -static -nostdlib -ffreestanding -fno-pie -no-pie -fno-stack-protector -fno-asynchronous-unwind-tables \
	-Wall -Werror -Wl,-s,-n,--build-id=none,-z,norelro,-z,noseparate-code -o "$tmp/pause" pause/pause.c
mkdir -p "$OUT"
"$step" "packing the container runtime" env GOARCH= $GO run ./pack -out "$OUT" -stamp "$stamp" \
	"programs=$tmp/host-local,$tmp/bridge,$tmp/containerd-shim-runc-v2,$tmp/runc" "pause=$tmp/pause"
