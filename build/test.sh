#!/bin/bash
# Runs every test once: the packages named in RACE with the race detector, all
# others without; those that work on this machine itself (containers, networks)
# one after the other, at last. What the tests prove is recorded in KEMUDI_TRACE_DIR. The
# last lines are those of the test runner, a pass that failed comes last.
set -uo pipefail
cd "$(dirname "$0")/.."
GO=${GO:-go}

# make test has built the program already.
[ -x bin/kemudi ] && export KEMUDI_BIN=${KEMUDI_BIN:-$PWD/bin/kemudi}

rm -rf "$KEMUDI_TRACE_DIR"
mkdir -p "$KEMUDI_TRACE_DIR"

all=$($GO list ./...) || exit 1
# Packages of RACE that do not exist (yet) are no error.
race=$($GO list -e -f '{{if not .Error}}{{.ImportPath}}{{end}}' $RACE 2>/dev/null | grep -Fx -f <(echo "$all") | sort)
rest=$(comm -23 <(echo "$all" | sort) <(echo "$race"))
host=$(grep -E '/(internal/(container|podnet|proxy|kubelet)|test)(/|$)' <<<"$rest")
rest=$(comm -23 <(echo "$rest") <(echo "$host"))

pass() { # <log> <go test arguments>
	log=$1
	shift
	$GO test $TEST_FLAGS "$@" 2>&1 | tee "$log"
	return "${PIPESTATUS[0]}"
}

logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
bad=0
if [ -n "$race" ]; then
	pass "$logs/race" -race $race || bad=1
fi
pass "$logs/rest" $rest || bad=1
if ! pass "$logs/host" -p 1 $host; then
	bad=1
fi
if [ $bad = 1 ]; then
	echo "--- failures of all passes, repeated from above:"
	grep -hvE '^(ok  |\?   )' "$logs"/*
	exit 1
fi
