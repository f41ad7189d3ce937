#!/bin/sh
# Builds the programs that travel inside kemudi and packs them into
# internal/container/embedded. Does nothing when nothing changed.
#
#   GO      the go command (go)
#   GOARCH  the machine to build for (this one): amd64 or arm64
#   CC      the C compiler (gcc, for another machine Debian's)
#   OUT     where to pack to (internal/container/embedded/$GOARCH)
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
GO=${GO:-go}
own=$($GO env GOHOSTARCH)
GOARCH=${GOARCH:-$($GO env GOARCH)}
OUT=${OUT:-$root/internal/container/embedded/$GOARCH}
case $GOARCH in
amd64) triple=x86_64-linux-gnu ;;
arm64) triple=aarch64-linux-gnu ;;
*)
	echo "runtime: the container runtime is built for amd64 and arm64, not for $GOARCH" >&2
	exit 1
	;;
esac
machine=
if [ "$GOARCH" = "$own" ]; then
	CC=${CC:-gcc}
else
	CC=${CC:-$triple-gcc}
	export PKG_CONFIG_LIBDIR=/usr/lib/$triple/pkgconfig # of libseccomp
	machine=" for $GOARCH"
fi
# The flags of the Makefile, so that what kemudi imports, too, is compiled once.
export GOARCH GOWORK=off GOFLAGS="-mod=readonly -buildvcs=false -trimpath" CGO_ENABLED=0
step=$root/build/step.sh

cd "$here"
stamp=$({ cat go.mod go.sum build.sh imports.go shim/* pause/* pack/*; $GO env GOVERSION; echo "$GOARCH $CC"; } | sha256sum | cut -d' ' -f1)
if [ "$(sed -n 's/^stamp //p' "$OUT/manifest" 2>/dev/null)" = "$stamp" ]; then
	exit 0
fi

"$root/build/prerequisites.sh"

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
# The shim speaks ttrpc alone: without gRPC, as containerd builds its own, it needs neither HTTP nor TLS.
"$step" "building the shim$machine" $GO build -tags no_grpc -ldflags "-s -w" -o "$tmp/containerd-shim-runc-v2" ./shim
"$step" "building the CNI plugins$machine" $GO build -ldflags "-s -w" -o "$tmp/" \
	github.com/containernetworking/plugins/plugins/main/bridge \
	github.com/containernetworking/plugins/plugins/ipam/host-local
"$step" "building runc$machine" env CGO_ENABLED=1 CC=$CC $GO build -tags "seccomp netgo osusergo urfave_cli_no_docs" \
	-ldflags "-s -w -linkmode external -extldflags -static" \
	-o "$tmp/runc" github.com/opencontainers/runc
"$step" "building pause$machine" $CC -Os -static -nostdlib -ffreestanding -fno-pie -no-pie -fno-stack-protector -fno-asynchronous-unwind-tables \
	-Wall -Werror -Wl,-s,-n,--build-id=none,-z,norelro,-z,noseparate-code -o "$tmp/pause" pause/pause.c
mkdir -p "$OUT"
"$step" "packing the container runtime$machine" env GOARCH= $GO run ./pack -out "$OUT" -stamp "$stamp" \
	"programs=$tmp/host-local,$tmp/bridge,$tmp/containerd-shim-runc-v2,$tmp/runc" "pause=$tmp/pause"
