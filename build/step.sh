#!/bin/sh
# step.sh WHAT COMMAND...: runs a command and says with its time that it was done,
# as kemudi up does. What takes long is announced.
what=$1
shift
start=$(date +%s.%N)
echo "     ...  $what"
"$@" || {
	code=$?
	echo "kemudi: $what: exit code $code of: $1" >&2
	exit "$code"
}
end=$(date +%s.%N)
awk -v a="$start" -v b="$end" -v what="$what" 'BEGIN { printf "%7.1fs  %s\n", b - a, what }'
