#!/bin/bash
# Installs the Debian packages that building, running and testing Kemudi needs
# and that this machine lacks. Says nothing when all is there. With GOARCH=arm64 (or
# amd64, on such a machine) also those that building for the other machine needs.
#
# kubectl is not among them: Debian has none. `kemudi kubectl` serves, and tests
# also use a kubectl that they find on the PATH.
set -euo pipefail

# package: what shows that it is there. A path, or a command on the PATH.
needs="
ca-certificates   /etc/ssl/certs/ca-certificates.crt
git               git
gcc               gcc
libc6-dev         /usr/include/stdlib.h
pkg-config        pkg-config
libseccomp-dev    /usr/include/seccomp.h
iproute2          ip
nftables          nft
conntrack         conntrack
procps            ps
dbus-daemon       dbus-daemon
busybox-static    busybox
"
# Tests start it themselves. Where systemd would start it for everybody, they go without.
if [ ! -d /run/systemd/system ]; then
	needs+="openssh-server    /usr/sbin/sshd
"
fi

# Administration commands are not on the PATH of every shell, and sudo takes Go
# off it.
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin:/usr/local/go/bin
GO=${GO:-go}

have() {
	case $1 in
	/*) [ -e "$1" ] ;;
	*) command -v "$1" >/dev/null ;;
	esac
}

need=$(sed -n 's/^go //p' "$(dirname "$0")/../go.mod")
if ! have "$GO"; then
	echo "prerequisites: there is no $GO on the PATH or in /usr/local/go/bin: install Go $need or later, see https://go.dev/dl" >&2
	exit 1
fi
# Since 1.21 Go fetches the version that a module asks for, unless it is told not to.
has=$(cd / && GOTOOLCHAIN=local "$GO" env GOVERSION)
enough=1.21
if [ "$(cd / && "$GO" env GOTOOLCHAIN)" = local ]; then
	enough=$need
fi
if [ "$(printf '%s\n' "$enough" "${has#go}" | sort -V | head -1)" != "$enough" ]; then
	echo "prerequisites: this is ${has:-a Go older than 1.13}, too old (Debian's package golang is): install Go $need or later, see https://go.dev/dl" >&2
	exit 1
fi

# The other machine has a compiler of its own, and its libraries are of a foreign architecture.
foreign=
case ${GOARCH:-} in
"" | "$(cd / && "$GO" env GOHOSTARCH)") ;;
amd64) foreign=amd64 triple=x86_64-linux-gnu ;;
arm64) foreign=arm64 triple=aarch64-linux-gnu ;;
esac
if [ -n "$foreign" ]; then
	needs+="
gcc-${triple/_/-}         $triple-gcc
libc6-dev-$foreign-cross  /usr/$triple/include/stdlib.h
libseccomp-dev:$foreign   /usr/lib/$triple/libseccomp.a
"
fi

missing=()
while read -r package sign; do
	if [ -n "$package" ] && ! have "$sign"; then
		missing+=("$package")
	fi
done <<<"$needs"
if [ ${#missing[@]} -eq 0 ]; then
	exit 0
fi

before=
if [[ ${missing[*]} == *:* ]]; then
	before="dpkg --add-architecture $foreign && apt-get update && "
fi
if ! have apt-get; then
	echo "prerequisites: this machine has no apt-get; install what provides: ${missing[*]}" >&2
	exit 1
fi
if [ "$(id -u)" != 0 ]; then
	echo "prerequisites: not root; run: ${before}apt-get install ${missing[*]}" >&2
	exit 1
fi

export DEBIAN_FRONTEND=noninteractive
install() { apt-get install -y -q --no-install-recommends "${missing[@]}"; }

echo "     ...  installing ${missing[*]}"
if [ -n "$before" ]; then
	dpkg --add-architecture "$foreign"
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# A fresh machine has no package lists, an old one outdated ones: then the first try fails.
if ! install >"$log" 2>&1 && ! { apt-get update -q && install; } >"$log" 2>&1; then
	cat "$log" >&2
	echo "prerequisites: apt-get could not install ${missing[*]}" >&2
	exit 1
fi
printf '%7ds  installing packages\n' "$SECONDS"
