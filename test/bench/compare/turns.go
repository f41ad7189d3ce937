package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// A turn measures one side once.
type turn interface {
	measure(ctx context.Context, r *figures, side int) error
}

// goTool is the go command to use.
func goTool() string { return cmp.Or(os.Getenv("GO"), "go") }

// prepare builds what is run by turns: pairs, the base first.
func prepare(ctx context.Context, o options, dir string, trees [2]tree) (pairs [][2]turn, err error) {
	if o.load != "" {
		pair, err := loads(ctx, o, dir, trees)
		return [][2]turn{pair}, err
	}
	for i, pkg := range o.packages {
		var pair [2]turn
		for side, t := range trees {
			binary := filepath.Join(dir, fmt.Sprintf("%d-%d.test", i, side))
			if _, err := t.do(ctx, goTool(), "test", "-c", "-o", binary, pkg); err != nil {
				return nil, err
			}
			pair[side] = &benchmarks{tree{filepath.Join(t.dir, pkg)}, binary, pkg, o}
		}
		pairs = append(pairs, pair)
	}
	return pairs, nil
}

// benchmarks are the Go benchmarks of a package.
type benchmarks struct {
	tree
	binary, pkg string
	o           options
}

func (b *benchmarks) measure(ctx context.Context, r *figures, side int) error {
	out, err := b.do(ctx, b.binary, "-test.run=^$", "-test.bench="+b.o.pattern, "-test.benchtime="+b.o.benchtime, "-test.timeout=1h")
	if err != nil {
		return err
	}
	for line := range strings.Lines(out) {
		// BenchmarkName-2  100  12.3 ns/op  4 B/op
		words := strings.Fields(line)
		if len(words) < 4 || !strings.HasPrefix(words[0], "Benchmark") {
			continue
		}
		name := strings.TrimPrefix(words[0], "Benchmark")
		if at := strings.LastIndexByte(name, '-'); at > 0 {
			name = name[:at] // the number of processors
		}
		for i := 2; i+1 < len(words); i += 2 {
			v, err := strconv.ParseFloat(words[i], 64)
			if err != nil {
				return fmt.Errorf("read result %q: %w", line, err)
			}
			r.add(filepath.Base(b.pkg)+" "+name, words[i+1], side, v)
		}
	}
	return nil
}

// loads builds both programs, and the load of the present tree for both.
func loads(ctx context.Context, o options, dir string, trees [2]tree) (pair [2]turn, err error) {
	bench := filepath.Join(dir, "bench")
	if _, err := trees[1].do(ctx, goTool(), "build", "-o", bench, "./test/bench"); err != nil {
		return pair, err
	}
	for side, t := range trees {
		binary := filepath.Join(dir, fmt.Sprintf("kemudi-%d", side))
		if _, err := t.do(ctx, goTool(), "build", "-ldflags", o.ldflags, "-o", binary, "./cmd/kemudi"); err != nil {
			return pair, err
		}
		pair[side] = &load{trees[1], bench, binary, filepath.Join(dir, "figures"), o.load}
	}
	return pair, nil
}

// load is a load on one of the programs.
type load struct {
	tree
	bench, program, figures, parts string
}

func (l *load) measure(ctx context.Context, r *figures, side int) error {
	if _, err := l.do(ctx, l.bench, "-kemudi", l.program, "-only", l.parts, "-out", "", "-figures", l.figures); err != nil {
		return err
	}
	text, err := os.ReadFile(l.figures)
	if err != nil {
		return fmt.Errorf("read figures: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Split(strings.TrimSpace(line), "\t")
		if len(fields) != 3 {
			return fmt.Errorf("read figures: %q is no line of three", line)
		}
		v, err := strconv.ParseFloat(fields[2], 64)
		if err != nil {
			return fmt.Errorf("read figures: %w", err)
		}
		r.add(fields[0], fields[1], side, v)
	}
	return nil
}
