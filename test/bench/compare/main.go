package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

// options are what is asked for.
type options struct {
	base      string
	packages  []string
	pattern   string // of benchmarks
	benchtime string
	load      string // parts of test/bench; empty: Go benchmarks
	ldflags   string
	rounds    int
}

func main() {
	var o options
	packages := flag.String("packages", "./internal/cache ./internal/watchcache ./internal/apiserver", "packages whose benchmarks are run")
	flag.StringVar(&o.base, "base", "", "commit to compare with (required)")
	flag.StringVar(&o.pattern, "bench", ".", "benchmarks to run, as go test -bench")
	flag.StringVar(&o.benchtime, "benchtime", "0.5s", "how long each is run at a time, as go test -benchtime")
	flag.StringVar(&o.load, "load", "", "instead of Go benchmarks: comma-separated parts of test/bench, such as outside")
	flag.StringVar(&o.ldflags, "ldflags", "", "link flags of the programs that get the load")
	flag.IntVar(&o.rounds, "rounds", 5, "how often each commit has its turn")
	flag.Parse()
	o.packages = strings.Fields(*packages)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) (err error) {
	switch {
	case o.base == "":
		return errors.New("name a commit to compare with: -base, or make bench-compare BASE=...")
	case o.rounds < 1:
		return fmt.Errorf("%d rounds measure nothing", o.rounds)
	case o.load == "" && len(o.packages) == 0:
		return errors.New("name packages or a load")
	}
	dir, err := os.MkdirTemp("", "kemudi-compare")
	if err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	base, commit, err := checkOut(ctx, dir, o.base)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, base.remove(ctx)) }()
	trees := [2]tree{base, {dir: "."}}
	runs, err := prepare(ctx, o, dir, trees)
	if err != nil {
		return err
	}
	var r figures
	for round := range o.rounds {
		for _, turn := range runs {
			order := []int{0, 1}
			if round%2 == 1 {
				order = []int{1, 0} // who comes second finds the machine warmer
			}
			for _, side := range order {
				if err := turn[side].measure(ctx, &r, side); err != nil {
					return err
				}
			}
		}
		fmt.Fprintf(os.Stderr, "round %d of %d\n", round+1, o.rounds)
	}
	fmt.Printf("base %s, %d rounds by turns, medians\n\n%s", commit, o.rounds, r.table())
	return nil
}
