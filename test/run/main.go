package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/kemudi/kemudi/internal/trace"
)

// options are the command line.
type options struct {
	race, pointers, flags, only, check string
	times, again                       int
	busy, memory                       bool
}

func main() {
	var o options
	spinning := flag.Bool("spin", false, "turn one processor until standard input ends")
	flag.StringVar(&o.race, "race", "", "`patterns` of the packages to run under the race detector")
	flag.StringVar(&o.pointers, "pointers", "", "`patterns` of the packages to run with uses of package unsafe checked")
	flag.StringVar(&o.flags, "flags", "", "`flags` of go test")
	flag.StringVar(&o.only, "only", "", "run packages whose path matches this `pattern`, only")
	flag.StringVar(&o.check, "check", "", "`program` to run beside the tests; it must find nothing")
	flag.IntVar(&o.times, "times", 1, "run everything this many `times`")
	flag.IntVar(&o.again, "again", 0, "run a package with failed tests this many `times` more, and let it pass if it passes them all")
	flag.BoolVar(&o.memory, "memory", false, "have tests but those on the machine itself write to memory, if there is enough")
	flag.BoolVar(&o.busy, "busy", false, "have other programs take all processors meanwhile")
	flag.Parse()
	if *spinning {
		spin(os.Stdin)
		return
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := newRunner(o, cmp.Or(os.Getenv("GO"), "go"), os.Stdout).run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "run:", err)
		os.Exit(1)
	}
}

// runner runs passes, and remembers what is to be said at the end.
type runner struct {
	o       options
	gocmd   string
	w       io.Writer
	scratch string // where tests write that are not on the machine itself; empty: as the environment says
	mu      struct {
		sync.Mutex
		skipped map[test]string // tests, each with its reason
		failed  []failure
		flaked  []failure // that did not come again
	}
}

func newRunner(o options, gocmd string, w io.Writer) *runner {
	r := &runner{o: o, gocmd: gocmd, w: w}
	r.mu.skipped = map[test]string{}
	return r
}

var errTests = errors.New("tests have failed")

func (r *runner) run(ctx context.Context) error {
	passes, err := r.passes(ctx)
	if err != nil {
		return err
	}
	if r.o.busy {
		stop, err := keepBusy()
		if err != nil {
			return err
		}
		defer stop()
	}
	if r.o.memory {
		remove := r.inMemory()
		defer remove()
	}
	for round := range r.o.times {
		if r.o.times > 1 {
			r.say("     ...  round %d of %d\n", round+1, r.o.times)
		}
		var lanes sync.WaitGroup
		for _, l := range []lane{raced, machine, rest} {
			lanes.Go(func() {
				if l == rest && round == 0 && r.o.check != "" {
					r.check(ctx)
				}
				for _, p := range passes {
					if p.lane() == l && ctx.Err() == nil {
						r.pass(ctx, p)
					}
				}
			})
		}
		lanes.Wait()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	if r.o.again > 0 {
		r.again(ctx)
	}
	return r.summary()
}

// passes asks go which packages there are. Patterns that match nothing (yet) are
// no error.
func (r *runner) passes(ctx context.Context) ([]pass, error) {
	all, err := r.list(ctx, "./...")
	if err != nil {
		return nil, err
	}
	race, err := r.listSome(ctx, r.o.race)
	if err != nil {
		return nil, err
	}
	pointers, err := r.listSome(ctx, r.o.pointers)
	if err != nil {
		return nil, err
	}
	only, err := regexp.Compile(r.o.only)
	if err != nil {
		return nil, fmt.Errorf("pattern of packages: %w", err)
	}
	all = slices.DeleteFunc(all, func(pkg string) bool { return !only.MatchString(strings.TrimPrefix(pkg, modulePath)) })
	passes := plan(all, race, pointers)
	left, err := r.leftOut(ctx, passes)
	if err != nil {
		return nil, err
	}
	if len(left) > 0 {
		passes = slices.Insert(passes, 0, leftOut(left))
	}
	return passes, nil
}

var testFunc = regexp.MustCompile(`(?m)^func (Test\w+)\(`)

// leftOut finds the tests that are not compiled under the race detector, of packages in passes that are:
// processes that are killed cost much there, and show nothing more.
func (r *runner) leftOut(ctx context.Context, passes []pass) (map[string][]string, error) {
	tests := map[string][]string{}
	for _, p := range passes {
		if !p.race {
			continue
		}
		const files = `{{range .TestGoFiles}}{{$.ImportPath}}:{{$.Dir}}/{{.}} {{end}}`
		plain, err := r.list(ctx, append([]string{"-f", files}, p.packages...)...)
		if err != nil {
			return nil, err
		}
		with, err := r.list(ctx, append([]string{"-f", files, "-tags", "race"}, p.packages...)...)
		if err != nil {
			return nil, err
		}
		for _, file := range plain {
			if slices.Contains(with, file) {
				continue
			}
			pkg, path, _ := strings.Cut(file, ":")
			text, err := os.ReadFile(path)
			if err != nil {
				return nil, fmt.Errorf("find tests without the race detector: %w", err)
			}
			for _, found := range testFunc.FindAllSubmatch(text, -1) {
				tests[pkg] = append(tests[pkg], string(found[1]))
			}
		}
	}
	return tests, nil
}

// listSome lists what matches patterns, if there is any.
func (r *runner) listSome(ctx context.Context, patterns string) ([]string, error) {
	if patterns == "" {
		return nil, nil
	}
	return r.list(ctx, append([]string{"-e", "-f", "{{if not .Error}}{{.ImportPath}}{{end}}"}, strings.Fields(patterns)...)...)
}

func (r *runner) list(ctx context.Context, args ...string) ([]string, error) {
	cmd := exec.CommandContext(ctx, r.gocmd, append([]string{"list"}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list packages: %w", err)
	}
	return strings.Fields(string(out)), nil
}

// pass runs one pass, and keeps what is to be said of it at the end.
func (r *runner) pass(ctx context.Context, p pass) {
	out, err := r.try(ctx, p)
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.Copy(r.mu.skipped, out.mu.skipped)
	if err != nil {
		briefs := out.mu.briefs
		if said := out.mu.loose[""]; len(said) > 0 {
			briefs = append(briefs, brief{title: "go test of tests " + p.name, said: said})
		}
		r.mu.failed = append(r.mu.failed, failure{p, out.failing(), out.mu.certain, fmt.Sprintf("tests %s:\n%s", p.name, out.mu.failed.String()), briefs})
	}
}

// check runs the program that must find nothing. What it compiles, tests of its lane need too.
func (r *runner) check(ctx context.Context) {
	var said bytes.Buffer
	cmd := r.command(ctx, rest, r.o.check)
	cmd.Stdout = io.MultiWriter(r, &said)
	cmd.Stderr = cmd.Stdout
	cmd.WaitDelay = 10 * time.Second // for what it has started, once it is told to end
	if err := cmd.Run(); err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		title := fmt.Sprintf("%s: %v", r.o.check, err)
		r.mu.failed = append(r.mu.failed, failure{
			certain: true, text: title + "\n" + said.String(), briefs: []brief{{title: title, said: []string{said.String()}}},
		})
	}
}

// try runs what pass asks for, and says how it went.
func (r *runner) try(ctx context.Context, p pass) (*output, error) {
	r.say("     ...  tests %s: %d packages\n", p.name, len(p.packages))
	out := newOutput(r, p, time.Now)
	err := r.goTest(ctx, p, out)
	result := "passed"
	if err != nil {
		result = fmt.Sprintf("failed (%v)", err)
	}
	r.say("%7.1fs  tests %s: %s\n", time.Since(out.began).Seconds(), p.name, result)
	return out, err
}

// goTest calls go test. The tests may clean up behind themselves after an
// interrupt, which they get too.
func (r *runner) goTest(ctx context.Context, p pass, out *output) error {
	cmd := r.command(ctx, p.lane(), append([]string{r.gocmd, "test"}, p.args(strings.Fields(r.o.flags))...)...)
	cmd.Stderr = os.Stderr
	cmd.Env = os.Environ()
	if p.race { // which needs cgo
		cmd.Env = append(cmd.Env, "CGO_ENABLED=1")
	}
	if r.scratch != "" && p.lane() != machine {
		cmd.Env = append(cmd.Env, "TMPDIR="+r.scratch, "GOTMPDIR="+os.TempDir()) // what go builds is too large
	}
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return fmt.Errorf("start go test: %w", err)
	}
	over := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { watch(out, over) })
	err = errors.Join(out.read(stdout), cmd.Wait())
	close(over)
	wg.Wait()
	return err
}

// command is one of a lane. What runs beside the race detector, which takes longer,
// has what that leaves of the processors.
func (r *runner) command(ctx context.Context, l lane, words ...string) *exec.Cmd {
	if l == rest && r.o.race != "" {
		words = append([]string{"nice"}, words...)
	}
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	return cmd
}

// say writes for people.
func (r *runner) say(format string, args ...any) { _, _ = fmt.Fprintf(r, format, args...) }

// Write is for what passes that run side by side have to say.
func (r *runner) Write(text []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.w.Write(text)
}

// watch lets out tell what runs until over is closed.
func watch(out *output, over <-chan struct{}) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			out.tick()
		case <-over:
			return
		}
	}
}

// summary says what is easily overlooked, and keeps a record of what was skipped
// beside the records of what was proved.
func (r *runner) summary() error {
	var lines []string
	for t, why := range r.mu.skipped {
		lines = append(lines, fmt.Sprintf("%s: %s", t, why))
		if dir := os.Getenv(trace.DirEnv); dir != "" {
			if err := (trace.Record{Package: t.pkg, Test: t.name, Skipped: true}).Keep(dir); err != nil {
				return err
			}
		}
	}
	slices.Sort(lines)
	r.say("--- %d tests were skipped\n", len(lines))
	for _, line := range lines {
		r.say("%s\n", line)
	}
	if len(r.mu.flaked) > 0 {
		r.say("--- FLAKES: this failed, then passed %d times. Each is a bug, find its cause:\n", r.o.again)
		for _, f := range r.mu.flaked {
			r.say("%s", f.text)
		}
	}
	if len(r.mu.failed) == 0 {
		return nil
	}
	r.say("--- failures of all passes, repeated from above:\n")
	for _, f := range r.mu.failed {
		r.say("%s", f.text)
	}
	r.say("--- what failed, in short:\n%s", short(r.mu.failed))
	return errTests
}
