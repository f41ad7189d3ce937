// Command run runs the tests of the whole tree, pass by pass: packages that hold
// shared state under the race detector, but for tests whose files it leaves out (go:build !race);
// all others without, some of them with pointers checked; those that work on the machine itself (containers, networks)
// one after the other. It is what make test and make test-often call.
//
//	run [-race PATTERNS] [-pointers PATTERNS] [-check PROGRAM] [-flags FLAGS] [-only PATTERN] [-times N] [-busy] [-memory] [-again N]
//
// Three lanes run side by side: the race detector, which has work for the processors from the
// first to the last minute; the machine itself, whose tests mostly wait, and must not mind; and
// all else, the program of -check before it, with what the other two leave of the processors.
// With -memory the disk is for the machine itself: what other tests write is in memory.
//
// While nothing ends it says every 20 seconds what runs. Of tests that pass it
// says nothing, of those that fail what they have printed, at once and again at
// the end, where the tests that were skipped stand too, each with its reason. The
// last hundred lines say in short what failed: they are what is kept of a long log.
//
// With -again, the tests that failed of up to three packages of a pass are no failure if they
// then pass N times, alone; they are told as flakes. Not forgiven are panics, data races,
// what does not compile and what a process leaves behind (docs/decisions/020).
//
// What lives here: which package is in which pass (passes.go), what becomes of
// the output of go test (output.go), what is tried again (again.go), what is said of failures where there is
// little room (brief.go), where tests write (memory.go), and what keeps the processors busy while
// suites run again and again (busy.go). What is run here is vetted by make lint, so
// go test does not.
package main
