#!/bin/sh
# step.sh WHAT COMMAND...: runs a command and says with its time that it was done,
# as kemudi up does. What takes long is announced, and says every 20 seconds what
# it compiles.
what=$1
shift
start=$(date +%s.%N)
echo "     ...  $what"

# compiling names what the compilers and linkers below this shell work at.
compiling() {
	ps -eo pid=,ppid=,args= | awk -v root=$$ '
		{ parent[$1] = $2; line[$1] = $0 }
		END {
			for (p in line) {
				for (q = p; q in parent && q != root; q = parent[q]) ;
				if (q != root || line[p] !~ /\/(compile|link|cgo|asm) /) continue
				if (match(line[p], / -p [^ ]+/)) name = substr(line[p], RSTART + 4, RLENGTH - 4)
				else if (match(line[p], /\/(link|cgo|asm) /)) name = substr(line[p], RSTART + 1, RLENGTH - 2)
				else continue
				if (!(name in seen)) printf "%s%s", n++ ? ", " : ": ", name
				seen[name] = 1
			}
		}'
}

{
	while sleep 20 >/dev/null && kill -0 $$; do
		echo "     ...  $what, $(($(date +%s) - ${start%.*})) s$(compiling)"
	done
} 2>/dev/null &
watcher=$!
trap 'kill "$watcher" 2>/dev/null' EXIT
trap 'exit 130' INT TERM

"$@" || {
	code=$?
	echo "kemudi: $what: exit code $code of: $1" >&2
	exit "$code"
}
end=$(date +%s.%N)
awk -v a="$start" -v b="$end" -v what="$what" 'BEGIN { printf "%7.1fs  %s\n", b - a, what }'
