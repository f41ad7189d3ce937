package main

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// pass is one call of go test.
type pass struct {
	name     string
	packages []string
	race     bool // under the race detector
	left     bool // what is not compiled under it, of packages that are
	pointers bool // with what is done by package unsafe checked, as the race detector has it
	alone    bool // one package after the other, beside those of other passes

	tests []string // run these only; empty: all
	times int      // run them so often, in the same process; 0: as the flags say
}

// A lane is what runs one after the other, beside the other lanes.
type lane int

const (
	raced   lane = iota // takes the longest
	machine             // mostly waits
	rest                // takes what the others leave of the processors
)

func (p pass) lane() lane {
	switch {
	case p.alone:
		return machine
	case p.race, p.left: // whose processes must not starve
		return raced
	}
	return rest
}

// host matches packages whose tests work on the machine itself: its containers,
// networks, firewall, cgroups.
var host = regexp.MustCompile(`^github\.com/kemudi/kemudi/(internal/(container|podnet|proxy)|test)(/|$)`)

// plan puts every package into one pass. What is in race is not in pointers.
func plan(all, race, pointers []string) []pass {
	passes := []pass{
		{name: "with the race detector", race: true},
		{name: "with pointers checked", pointers: true},
		{name: "without the race detector"},
		{name: "on the machine itself, with the race detector", race: true, alone: true},
		{name: "on the machine itself", alone: true},
	}
	for _, pkg := range all {
		for i := range passes {
			p := &passes[i]
			if p.race == slices.Contains(race, pkg) && p.pointers == slices.Contains(pointers, pkg) && p.alone == host.MatchString(pkg) {
				p.packages = append(p.packages, pkg)
			}
		}
	}
	return slices.DeleteFunc(passes, func(p pass) bool { return len(p.packages) == 0 })
}

// leftOut is the pass for tests that are not compiled under the race detector: each by its name,
// as their packages' others are in its pass.
func leftOut(tests map[string][]string) pass {
	p := pass{name: "that the race detector leaves out", left: true}
	for _, pkg := range slices.Sorted(maps.Keys(tests)) {
		p.packages, p.tests = append(p.packages, pkg), append(p.tests, tests[pkg]...)
	}
	return p
}

// args are what follows "go test".
func (p pass) args(flags []string) []string {
	args := append([]string{"-json", "-vet=off"}, flags...)
	if p.race {
		args = append(args, "-race")
	}
	if p.pointers {
		args = append(args, "-gcflags="+modulePath+"...=-d=checkptr")
	}
	if p.alone {
		args = append(args, "-p=1")
	}
	if len(p.tests) > 0 {
		args = append(args, "-run="+pattern(p.tests))
	}
	if p.times > 0 {
		args = append(args, "-count="+strconv.Itoa(p.times))
	}
	return append(args, p.packages...)
}

// pattern matches tests by their whole names.
func pattern(tests []string) string {
	var all []string
	for _, test := range tests {
		var parts []string
		for part := range strings.SplitSeq(test, "/") {
			parts = append(parts, "^"+regexp.QuoteMeta(part)+"$")
		}
		all = append(all, strings.Join(parts, "/"))
	}
	return strings.Join(all, "|")
}
