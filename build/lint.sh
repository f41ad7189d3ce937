#!/bin/bash
# Checks the format, what go vet and staticcheck find (build/lint), and the house
# rules, over the whole tree, and reports everything, not only what is found first.
set -uo pipefail
cd "$(dirname "$0")/.."
GO=${GO:-go}
step=build/step.sh
bad=0

unformatted=$(git ls-files -z --cached --others --exclude-standard -- '*.go' | xargs -0 -r ls -d 2>/dev/null | xargs -r gofmt -l)
if [ -n "$unformatted" ]; then
	printf '%s: not formatted: run gofmt -w\n' $unformatted
	bad=1
fi
$step "building the linter" $GO build -C build/lint -o "$PWD/bin/lint" . || exit 1
# What was found clean, with this linter, need not be looked at again.
looked=$({ $GO env GOVERSION && sha256sum bin/lint go.mod go.sum staticcheck.conf && git ls-files -z --cached --others --exclude-standard -- '*.go' | xargs -0 -r sha256sum; } 2>/dev/null | sha256sum)
if [ "$(cat bin/lint.clean 2>/dev/null)" != "$looked" ]; then
	# What the linter reads about packages that are imported.
	$step "compiling what tests import" $GO list -export -deps -test -f '{{if not .}}{{end}}' ./... || bad=1
	if $step "vet and staticcheck" bin/lint ./...; then
		echo "$looked" >bin/lint.clean
	else
		bad=1
	fi
fi
$step "house rules" $GO test -count=1 -vet=off ./internal/arch || bad=1
exit $bad
