package main

import "context"

// failure is what failed in a pass.
type failure struct {
	pass     pass
	packages []string // those with tests that failed
	certain  bool     // another try would prove nothing
	text     string
}

// mostAgain is how many packages of a pass may fail for another try: where more
// do, it is not chance.
const mostAgain = 2

// again runs what failed a few times more, alone. What then passes each time is a
// flake: the run passes, and says so.
func (r *runner) again(ctx context.Context) {
	var failed []failure
	for _, f := range r.mu.failed {
		if !f.certain && len(f.packages) <= mostAgain && r.passesAgain(ctx, f) {
			r.mu.flaked = append(r.mu.flaked, f.text)
		} else {
			failed = append(failed, f)
		}
	}
	r.mu.failed = failed
}

func (r *runner) passesAgain(ctx context.Context, f failure) bool {
	f.pass.packages = f.packages
	f.pass.name += ", again"
	for range r.o.again {
		if _, err := r.try(ctx, f.pass); err != nil {
			return false
		}
	}
	return true
}
