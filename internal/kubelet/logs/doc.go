// Package logs reads the files that the container runtime writes containers'
// output to, and keeps them small.
//
// A line of a file is "<time> <stream> <tags> <text>": the time in RFC 3339 with
// nanoseconds, the stream stdout or stderr, the tag P for a part of a line that
// goes on and F for its end. See [Read] and [Rotator].
package logs
