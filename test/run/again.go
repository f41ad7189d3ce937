package main

import (
	"context"
	"maps"
	"slices"
	"strings"
)

// failure is what failed in a pass.
type failure struct {
	pass    pass
	tests   map[string][]string // that failed, by package; none named: all of it
	certain bool                // another try would prove nothing
	text    string              // all that was said of it
	briefs  []brief             // the same in short
}

// mostAgain is how many packages of a pass may fail for another try: where more
// do, it is not chance.
const mostAgain = 3

// again runs the tests that failed a few times more, alone. What then passes each time is a
// flake: the run passes, and says so.
func (r *runner) again(ctx context.Context) {
	var failed []failure
	for _, f := range r.mu.failed {
		if !f.certain && len(f.tests) <= mostAgain && r.passesAgain(ctx, f) {
			r.mu.flaked = append(r.mu.flaked, f)
		} else {
			failed = append(failed, f)
		}
	}
	r.mu.failed = failed
}

func (r *runner) passesAgain(ctx context.Context, f failure) bool {
	for _, pkg := range slices.Sorted(maps.Keys(f.tests)) {
		p := f.pass
		p.name += ", again"
		p.packages, p.tests, p.times = []string{pkg}, ends(f.tests[pkg]), r.o.again
		if _, err := r.try(ctx, p); err != nil {
			return false
		}
	}
	return true
}

// ends are the tests of a list that failed by themselves, and not only by what they consist of.
func ends(tests []string) []string {
	return slices.DeleteFunc(slices.Clone(tests), func(test string) bool {
		return slices.ContainsFunc(tests, func(other string) bool { return strings.HasPrefix(other, test+"/") })
	})
}
