package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

func main() {
	bin := flag.String("kemudi", "bin/kemudi", "program to measure")
	out := flag.String("out", "docs/bench.md", "file to write the table to; empty: none")
	figures := flag.String("figures", "", "file to write the figures to, a line each: name, unit and value between tabs")
	baseline := flag.String("baseline", "", "program of test/baseline that gets the load from outside by turns with the other; empty: none")
	rounds := flag.Int("rounds", 1, "how often the load from outside is measured; medians count")
	only := flag.String("only", "", "comma-separated parts to measure: node, plane, load, outside, custom, writes, reads, scale, cluster, net, size, tests; default all but load, the last part of plane, writes and reads, the beginning of outside without and with its reads, and scale, cluster and net, which have tables of their own")
	steps := flag.String("steps", "", "comma-separated steps of the part scale, cluster or net; default all")
	within := flag.Duration("within", 0, "how long the part cluster may take: what there is no time for is not measured; 0: as long as it takes")
	agents := flag.Int("agents", agentsSimulated, "how many agents the step agents of the part cluster simulates")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if what := os.Getenv(memberEnv); what != "" {
		if err := etcdMember(ctx, what); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	err := run(ctx, &bench{bin: *bin, baseline: *baseline, rounds: *rounds, only: *only, steps: *steps, within: *within, agents: *agents}, output{*out, *figures})
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// output is where the results are written; empty: nowhere.
type output struct{ table, figures string }

func (o output) write(table, figures string) error {
	for file, text := range map[string]string{o.table: table, o.figures: figures} {
		if file == "" {
			continue
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			return fmt.Errorf("write results: %w", err)
		}
	}
	return nil
}

func run(ctx context.Context, b *bench, out output) error {
	if b.rounds < 1 {
		return fmt.Errorf("%d rounds measure nothing", b.rounds)
	}
	for bin, build := range map[*string]string{&b.bin: "make build", &b.baseline: "make bench-baseline"} {
		if *bin == "" {
			continue
		}
		path, err := filepath.Abs(*bin)
		if err != nil {
			return fmt.Errorf("find program: %w", err)
		}
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("find program: %w; run %s", err, build)
		}
		*bin = path
	}
	b.results, b.samples, b.done, b.began, b.busy = results{}, samples{}, map[string]bool{}, time.Now(), load()
	b.dir = os.Getenv(insideEnv)
	if b.dir == "" {
		return supervise(ctx, b)
	}
	b.node, b.plane = places(b.dir)
	for _, bin := range []*string{&b.bin, &b.baseline} {
		if *bin == "" {
			continue
		}
		if err := install(bin, b.dir); err != nil {
			return err
		}
	}
	err := b.measure(ctx)
	if err != nil && len(b.results) == 0 || err != nil && b.only != "cluster" && b.only != "net" {
		return err
	}
	doc := b.document(about(ctx, b.bin))
	switch b.only {
	case "scale":
		doc = b.scaleDocument(about(ctx, b.bin))
	case "cluster":
		doc = b.clusterDocument(about(ctx, b.bin))
	case "net":
		doc = b.netDocument(about(ctx, b.bin))
	}
	fmt.Print("\n", doc)
	return errors.Join(err, out.write(doc, b.results.figures()))
}

// bench is one run of the benchmark.
type bench struct {
	bin         string
	baseline    string          // upstream's server library; empty: none
	rounds      int             // of the load from outside
	only        string          // parts that are asked for; empty: all but scale, cluster and net
	steps       string          // of the part scale, cluster or net that are asked for; empty: all
	within      time.Duration   // for the part cluster; 0: as long as it takes
	agents      int             // of its step agents
	done        map[string]bool // its steps that another one has done
	missing     []string        // its steps that have failed
	dir         string          // scratch
	node, plane place
	results     results
	samples     samples // of the load from outside
	elsewhere   results // of the baseline
	began       time.Time
	busy        string // the machine's load when it began
}

// wanted says whether a part is asked for by the flag -only.
func (b *bench) wanted(part string) bool {
	return b.only == "" || listed(b.only, part)
}

// listed says whether a comma-separated list has a name.
func listed(list, name string) bool { return strings.Contains(","+list+",", ","+name+",") }

// measure measures the parts that are asked for.
func (b *bench) measure(ctx context.Context) error {
	if err := network(ctx); err != nil {
		return err
	}
	if b.wanted("node") || b.wanted("plane") {
		if err := b.servers(ctx, b.wanted("node"), b.wanted("plane")); err != nil {
			return err
		}
	}
	if b.only != "" && b.wanted("load") {
		if err := b.planeAlone(ctx, func(s *server) error { return b.load(ctx, s) }); err != nil {
			return err
		}
	}
	if b.wanted("outside") || b.only != "" && (b.wanted("writes") || b.wanted("reads")) {
		if err := b.turns(ctx); err != nil {
			return err
		}
	}
	if b.wanted("custom") {
		if err := b.custom(ctx); err != nil {
			return err
		}
	}
	if listed(b.only, "scale") {
		if err := b.scale(ctx); err != nil {
			return err
		}
	}
	if listed(b.only, "cluster") {
		if err := b.cluster(ctx); err != nil {
			return err
		}
	}
	if b.only == "net" {
		return b.net(ctx)
	}
	if b.wanted("size") {
		if err := b.programSize(); err != nil {
			return err
		}
	}
	if b.wanted("tests") {
		return b.runTests(ctx, goTests)
	}
	return nil
}

// servers measures running servers: that with a node, and the control plane
// alone. Both idle at the same time.
func (b *bench) servers(ctx context.Context, withNode, withPlane bool) (err error) {
	var idle []*idler
	// To reset one undoes the network of the other, so the node goes first.
	if withPlane {
		defer func() { err = errors.Join(err, b.plane.remove(ctx, b.bin)) }()
		s, err := b.planeStarts(ctx)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.stop()) }()
		idle = append(idle, &idler{s: s, memory: planeMemory, cpu: planeCPU, disk: planeDisk})
	}
	if withNode {
		if err := b.nodeAndIdle(ctx, idle); err != nil {
			return err
		}
	} else if err := b.idle(ctx, idle); err != nil {
		return err
	}
	if withPlane {
		return b.load(ctx, idle[0].s)
	}
	return nil
}

// planeAlone calls f with a control plane that has just been started, in a place
// where none was.
func (b *bench) planeAlone(ctx context.Context, f func(*server) error) (err error) {
	defer func() { err = errors.Join(err, b.plane.remove(ctx, b.bin)) }()
	s, err := b.plane.start(b.bin)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	if _, err := s.ready(ctx); err != nil {
		return err
	}
	return f(s)
}

// nodeAndIdle measures a server with a node, and at last how it idles with others.
func (b *bench) nodeAndIdle(ctx context.Context, others []*idler) (err error) {
	defer func() { err = errors.Join(err, b.node.remove(ctx, b.bin)) }()
	s, err := b.nodeStarts(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	if err := b.pods(ctx, s); err != nil {
		return err
	}
	return b.idle(ctx, append(others, &idler{s: s, memory: memory, cpu: idleCPU, disk: idleDisk}))
}

// say reports progress.
func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%6.1f s  %s\n", time.Since(b.began).Seconds(), fmt.Sprintf(format, args...))
}

// about says what was measured, on what.
func about(ctx context.Context, bin string) string {
	version := "unknown version"
	if out, err := exec.CommandContext(ctx, bin, "version").Output(); err == nil {
		version = strings.TrimSpace(string(out))
	}
	model := "unknown processor"
	if data, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(data)) {
			if _, name, ok := strings.Cut(line, "model name\t: "); ok {
				model = strings.TrimSpace(name)
				break
			}
		}
	}
	kernel := ""
	if data, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		kernel = strings.TrimSpace(string(data))
	} else if !errors.Is(err, fs.ErrNotExist) {
		kernel = err.Error()
	}
	return fmt.Sprintf("On %s: %s, %d processors (%s), Linux %s.", time.Now().UTC().Format(time.DateOnly), version, runtime.NumCPU(), model, kernel)
}
