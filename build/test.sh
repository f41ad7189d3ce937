#!/bin/bash
# Runs the tests by test/run, which gets the arguments; TEST_FLAGS are those of go
# test. If KEMUDI_TRACE_DIR is set, what the tests prove is recorded there and
# compared with the report that is kept.
set -euo pipefail
cd "$(dirname "$0")/.."
export GO=${GO:-go}

# make test has built the program already.
[ -x bin/kemudi ] && export KEMUDI_BIN=${KEMUDI_BIN:-$PWD/bin/kemudi}

$GO build -o bin/run ./test/run
if [ -z "${KEMUDI_TRACE_DIR:-}" ]; then
	exec bin/run -flags "$TEST_FLAGS" "$@"
fi
rm -rf "$KEMUDI_TRACE_DIR"
mkdir -p "$KEMUDI_TRACE_DIR"
bin/run -flags "$TEST_FLAGS" "$@"
$GO run ./internal/trace/cmd/requirements -dir "$KEMUDI_TRACE_DIR" -check docs/requirements/COVERAGE.md
