#!/bin/bash
# Runs the linters over the whole tree and reports everything they find, not
# only what the first one finds. STATICCHECK names the binary to use.
set -uo pipefail
cd "$(dirname "$0")/.."
GO=${GO:-go}
bad=0

unformatted=$(git ls-files -z --cached --others --exclude-standard -- '*.go' | xargs -0 -r ls -d 2>/dev/null | xargs -r gofmt -l)
if [ -n "$unformatted" ]; then
	printf '%s: not formatted: run gofmt -w\n' $unformatted
	bad=1
fi
$GO vet ./... || bad=1
"$STATICCHECK" ./... || bad=1
$GO test -count=1 ./internal/arch || bad=1
exit $bad
