package main

import (
	"fmt"
	"regexp"
	"strings"
)

// brief is what is said of a failure where there is little room.
type brief struct {
	title string
	of    test     // if it is one's
	said  []string // lines
}

const (
	// shortLines is how long the summary of all failures is: what keeps the end of a log keeps
	// this of it.
	shortLines = 100
	// leastLines is how many lines of what it has said each failure has.
	leastLines = 4
	// entryLines is how many lines each thing has that a test has logged: some log whole files.
	entryLines = 6
	// lineLength is how much there is of a line.
	lineLength = 300
)

var (
	// entry matches the first line of what a test has logged.
	entry = regexp.MustCompile(`^\s*\S+\.go:\d+: `)
	// result matches what package testing says itself.
	result = regexp.MustCompile(`^\s*(--- FAIL: |FAIL$|=== )`)
	// worst matches where that begins which ended a process.
	worst = regexp.MustCompile(`^(panic|fatal error|SIGQUIT): |^WARNING: DATA RACE`)
)

// short says of each failure the most important, in a length that is bounded.
func short(failed []failure) string {
	var list []brief
	for _, f := range failed {
		for _, b := range f.briefs {
			if b.said = b.essence(); len(b.said) > 0 || !b.isWhole(f.briefs) {
				list = append(list, b)
			}
		}
	}
	var text strings.Builder
	for i, b := range list {
		if i*(1+leastLines) > shortLines {
			fmt.Fprintf(&text, "and %d more failures\n", len(list)-i)
			break
		}
		fmt.Fprintf(&text, "FAILED %s\n", b.title)
		for _, line := range middleOut(b.said, max(leastLines, shortLines/len(list)-1)) {
			fmt.Fprintf(&text, "%s\n", line[:min(len(line), lineLength)])
		}
	}
	return text.String()
}

// isWhole reports whether a test consists of others that failed.
func (b *brief) isWhole(all []brief) bool {
	for _, other := range all {
		if other.of.pkg == b.of.pkg && strings.HasPrefix(other.of.name, b.of.name+"/") {
			return true
		}
	}
	return false
}

// essence leaves out what says nothing of a failure: logs of what a test has run, and most of what
// it shows of files.
func (b *brief) essence() (lines []string) {
	entries, of := false, 0
	for line := range strings.Lines(strings.Join(b.said, "")) {
		line = strings.TrimRight(line, "\n")
		switch {
		case worst.MatchString(line):
			lines, entries, of = []string{line}, false, 0 // all that comes after it
			continue
		case result.MatchString(line), line == "":
			continue
		case entry.MatchString(line) && !entries && (len(lines) == 0 || !worst.MatchString(lines[0])):
			lines, entries, of = nil, true, 0
		case entry.MatchString(line):
			of = 0
		}
		if of++; entries && of > entryLines {
			lines = lines[:len(lines)-1] // how it begins and how it ends
		}
		lines = append(lines, line)
	}
	return lines
}

// middleOut leaves out the middle of what is too long.
func middleOut(lines []string, most int) []string {
	if len(lines) <= most {
		return lines
	}
	end := most / 3
	begin := most - end - 1
	some := append([]string{}, lines[:begin]...)
	some = append(some, fmt.Sprintf("    ... %d lines more, see above", len(lines)-begin-end))
	return append(some, lines[len(lines)-end:]...)
}
