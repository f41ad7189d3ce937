package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"time"
)

// goCommand is the go command to use.
func goCommand() string {
	if g := os.Getenv("GO"); g != "" {
		return g
	}
	return "go"
}

// A goTest is a benchmark of a package, and which figures of what it prints are
// wanted.
type goTest struct {
	pkg     string // below internal
	args    []string
	env     string
	figures map[*regexp.Regexp]measure
}

// figure finds the value of a unit in a line of a benchmark's result.
func figure(name, unit string) *regexp.Regexp {
	return regexp.MustCompile(`(?m)^Benchmark` + name + `(?:-\d+)?\s.*?([\d.e+]+) ` + unit + `\b`)
}

var goTests = []goTest{
	{"scheduler", []string{"-test.run=^$", "-test.bench=^BenchmarkCycle$/^(plain|pod_affinity|pod_anti-affinity|topology_spread)$", "-test.benchtime=5000x"}, "", map[*regexp.Regexp]measure{
		figure("Cycle/plain", "pods/s"):             schedPlain,
		figure("Cycle/pod_affinity", "pods/s"):      schedNear,
		figure("Cycle/pod_anti-affinity", "pods/s"): schedApart,
		figure("Cycle/topology_spread", "pods/s"):   schedSpread,
	}},
	{"scheduler", []string{"-test.run=^$", "-test.bench=^BenchmarkBind$", "-test.benchtime=3x"}, "", map[*regexp.Regexp]measure{
		figure("Bind", "pods/s"): schedBind,
	}},
	{"sim", []string{"-test.run=^TestNodesLiveForAnHour$", "-test.v"}, "KEMUDI_SIM_NODES=1000", map[*regexp.Regexp]measure{
		regexp.MustCompile(`1000 nodes for an hour took (\S+)`): simHour,
	}},
}

// prepare builds what the measurements need, before there is anything to disturb.
func (b *bench) prepare(ctx context.Context, pods bool, tests []goTest) error {
	if pods {
		b.say("building the image of the pods")
		if err := b.buildImage(ctx); err != nil {
			return err
		}
	}
	for _, t := range tests {
		if _, err := os.Stat(b.testBinary(t)); err == nil {
			continue
		}
		b.say("building the benchmarks of internal/%s", t.pkg)
		cmd := exec.CommandContext(ctx, goCommand(), "test", "-c", "-o", b.testBinary(t), "./internal/"+t.pkg)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build benchmarks of %s: %w\n%s", t.pkg, err, out)
		}
	}
	return nil
}

func (b *bench) testBinary(t goTest) string { return filepath.Join(b.dir, t.pkg+".test") }

// runTests runs the benchmarks that are written as Go tests.
func (b *bench) runTests(ctx context.Context, tests []goTest) error {
	for _, t := range tests {
		cmd := exec.CommandContext(ctx, b.testBinary(t), t.args...)
		cmd.Dir = filepath.Join("internal", t.pkg)
		cmd.Env = append(os.Environ(), t.env)
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("benchmark %s: %w\n%s", t.pkg, err, out)
		}
		for pattern, m := range t.figures {
			v, err := valueIn(out, pattern, m.unit)
			if err != nil {
				return fmt.Errorf("benchmark %s: %s: %w\n%s", t.pkg, m.name, err, out)
			}
			b.results[m] = v
			b.say("%s: %s", m.name, m.unit.format(v))
		}
	}
	return nil
}

// valueIn finds a number or a duration; of several, the last.
func valueIn(out []byte, pattern *regexp.Regexp, u unit) (float64, error) {
	all := pattern.FindAllSubmatch(out, -1)
	if len(all) == 0 {
		return 0, fmt.Errorf("nothing matches %s", pattern)
	}
	word := string(bytes.TrimSpace(all[len(all)-1][1]))
	if v, err := strconv.ParseFloat(word, 64); err == nil {
		return v, nil
	}
	d, err := time.ParseDuration(word)
	if err != nil {
		return 0, fmt.Errorf("%q is neither a number nor a duration", word)
	}
	return u.of(d), nil
}
