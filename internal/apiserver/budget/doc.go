// Package budget knows how much memory the process may still take, and shares it
// out to requests by what they will need: what does not fit is refused before
// the kernel ends the process.
//
// The limit is Go's own soft limit (GOMEMLIMIT, debug.SetMemoryLimit), which whoever
// starts the process sets to what the machine or its cgroup gives, or its user (--memory-limit). Without one
// nothing is refused.
package budget
