package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// skipLine matches what tests print when they are skipped, those of a child process included.
var skipLine = regexp.MustCompile(`^ *--- SKIP: (\S+)`)

// noChance matches what is a fault of the program however seldom it comes.
var noChance = regexp.MustCompile(`(?m)^(panic|fatal error): |WARNING: DATA RACE`)

// fault tells whether text is of something that another try does not excuse.
func fault(text string) bool {
	return slices.ContainsFunc(noChance.FindAllStringIndex(text, -1), func(at []int) bool { return !slip(text[at[0]:]) })
}

// slip tells whether a text begins with a panic that a test has raised itself, as by reading what
// is not there yet: that is as much chance as a wrong assertion is.
func slip(text string) bool {
	_, stack, is := strings.Cut(text, "\ngoroutine ")
	if !is || !strings.HasPrefix(text, "panic: ") {
		return false
	}
	stack, _, _ = strings.Cut(stack, "\n\n") // of the one that panicked
	_, below, is := strings.Cut(stack, "\npanic({")
	if !is {
		return false
	}
	lines := strings.Split(below, "\n") // in pairs: a function, and where it is
	for lines = lines[min(2, len(lines)):]; len(lines) > 1; lines = lines[2:] {
		if !strings.HasPrefix(lines[0], "runtime.") {
			return strings.Contains(lines[1], "_test.go:")
		}
	}
	return false
}

// quiet is how long nothing is said before it is said what runs.
const quiet = 20 * time.Second

const modulePath = "github.com/kemudi/kemudi/"

// event is a line of go test -json.
type event struct {
	Action, Package, Test, Output string
}

// test is a test, or if it has no name all of its package.
type test struct{ pkg, name string }

func (t test) String() string {
	return strings.TrimSpace(strings.TrimPrefix(t.pkg, modulePath) + " " + t.name)
}

// output turns the events of a pass into lines that people read.
type output struct {
	w     io.Writer
	pass  pass
	now   func() time.Time
	began time.Time

	mu struct {
		sync.Mutex
		said    time.Time           // when something was last written
		done    int                 // packages
		running map[test]time.Time  // since when
		held    map[test][]string   // what a test has printed, until it ends
		skipped map[test]string     // tests, each with its reason
		failed  bytes.Buffer        // what was written of failures
		failing map[string][]string // tests that failed, by package
		cut     map[string]bool     // packages whose process ended amid its tests
		loose   map[string][]string // what packages have said beside their tests; by "": what go test has
		briefs  []brief             // what failed
		certain bool                // something failed that is no chance
	}
}

func newOutput(w io.Writer, p pass, now func() time.Time) *output {
	o := &output{w: w, pass: p, now: now, began: now()}
	o.mu.said = o.began
	o.mu.running, o.mu.held, o.mu.skipped = map[test]time.Time{}, map[test][]string{}, map[test]string{}
	o.mu.failing, o.mu.loose = map[string][]string{}, map[string][]string{}
	o.mu.cut = map[string]bool{}
	return o
}

// read takes what go test prints until it ends.
func (o *output) read(r io.Reader) error {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			o.line(line)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the output of go test: %w", err)
		}
	}
}

func (o *output) line(line []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var e event
	if json.Unmarshal(line, &e) != nil {
		o.looseLocked("", string(line)) // go test itself has something to say
		o.mu.certain = true
		return
	}
	t := test{e.Package, e.Test}
	switch e.Action {
	case "start", "run", "cont":
		o.mu.running[t] = o.now()
	case "pause":
		delete(o.mu.running, t)
	case "output":
		o.printedLocked(t, e.Output)
	case "build-output":
		o.looseLocked("", e.Output)
		o.mu.certain = true
	case "pass", "skip", "fail":
		o.endLocked(t, e.Action)
	}
}

// printedLocked keeps what a test prints. What a package says of itself is
// written at once: the line with its result, or what its process left.
func (o *output) printedLocked(t test, text string) {
	switch {
	case strings.HasPrefix(text, "=== "), t.name == "" && text == "PASS\n", strings.Contains(text, "[no test files]"):
	case strings.HasPrefix(text, "-test.shuffle "): // to try that order again, if the package fails
		o.mu.held[t] = append(o.mu.held[t], text)
	case t.name != "":
		if m := skipLine.FindStringSubmatch(text); m != nil {
			o.mu.skipped[test{t.pkg, m[1]}] = reason(o.mu.held[t])
		}
		o.mu.held[t] = append(o.mu.held[t], text)
	case strings.HasPrefix(text, "ok  "):
		o.sayLocked(text)
	default:
		o.looseLocked(t.pkg, text)
	}
}

// looseLocked is for what is of no test.
func (o *output) looseLocked(pkg, text string) {
	o.mu.loose[pkg] = append(o.mu.loose[pkg], text)
	o.failLocked(text)
}

func (o *output) endLocked(t test, how string) {
	delete(o.mu.running, t)
	if t.name == "" {
		o.mu.done++
		// A process that ends badly though no test has failed, left something or was ended.
		alone := how == "fail" && len(o.mu.failing[t.pkg]) == 0
		o.mu.certain = o.mu.certain || alone
		said := o.mu.loose[t.pkg]
		for _, left := range slices.SortedFunc(maps.Keys(o.mu.held), func(a, b test) int { return strings.Compare(a.name, b.name) }) {
			if left.pkg == t.pkg && how == "fail" { // what ran when the process ended
				o.failLocked(strings.Join(o.mu.held[left], ""))
				said = append(said, o.mu.held[left]...)
			}
			if left.pkg == t.pkg {
				delete(o.mu.held, left)
			}
		}
		if alone {
			o.mu.briefs = append(o.mu.briefs, o.brief(t, said))
		}
		return
	}
	text := o.mu.held[t]
	delete(o.mu.held, t)
	if how == "fail" {
		o.mu.failing[t.pkg] = append(o.mu.failing[t.pkg], t.name)
		if noChance.MatchString(strings.Join(text, "")) {
			o.mu.cut[t.pkg] = true
		}
		o.mu.briefs = append(o.mu.briefs, o.brief(t, text))
		o.failLocked(strings.Join(text, ""))
	}
}

// failing are the tests that failed, by package. Where a process ended amid them none is named: all of
// the package has to run.
func (o *output) failing() map[string][]string {
	failing := maps.Clone(o.mu.failing)
	for pkg := range o.mu.cut {
		failing[pkg] = nil
	}
	return failing
}

func (o *output) brief(of test, said []string) brief {
	return brief{title: of.String() + ", tests " + o.pass.name, of: of, said: said}
}

// where matches the file and line before what a test says, of a child process too.
var where = regexp.MustCompile(`^(\s*\S+\.go:\d+:)+ *`)

// reason is what a test has said last.
func reason(text []string) string {
	for _, line := range slices.Backward(text) {
		if line = strings.TrimSpace(where.ReplaceAllString(line, "")); line != "" {
			return line
		}
	}
	return "no reason given"
}

func (o *output) sayLocked(text string) {
	o.mu.said = o.now()
	_, _ = io.WriteString(o.w, text) // to a terminal or a log; nothing to do about one that is gone
}

func (o *output) failLocked(text string) {
	o.mu.certain = o.mu.certain || fault(text)
	o.mu.failed.WriteString(text)
	o.sayLocked(text)
}

// tick says what runs if nothing was said for a while.
func (o *output) tick() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.now().Sub(o.mu.said) < quiet {
		return
	}
	o.sayLocked(fmt.Sprintf("     ...  tests %s, %s, %d of %d packages: %s\n",
		o.pass.name, o.now().Sub(o.began).Round(time.Second), o.mu.done, len(o.pass.packages), o.runningLocked()))
}

// runningLocked names the tests that run, the oldest first, or else the
// packages; where there are none, compilers are at work.
func (o *output) runningLocked() string {
	var tests, packages []test
	for t := range o.mu.running {
		if t.name == "" {
			packages = append(packages, t)
		} else if !strings.Contains(t.name, "/") {
			tests = append(tests, t)
		}
	}
	packages = slices.DeleteFunc(packages, func(p test) bool {
		return slices.ContainsFunc(tests, func(t test) bool { return t.pkg == p.pkg })
	})
	all := append(tests, packages...)
	if len(all) == 0 {
		return "compiling"
	}
	slices.SortFunc(all, func(a, b test) int {
		if order := o.mu.running[a].Compare(o.mu.running[b]); order != 0 {
			return order
		}
		return strings.Compare(a.String(), b.String())
	})
	const most = 4
	var words []string
	for _, t := range all[:min(len(all), most)] {
		words = append(words, fmt.Sprintf("%s (%s)", t, o.now().Sub(o.mu.running[t]).Round(time.Second)))
	}
	if more := len(all) - most; more > 0 {
		words = append(words, fmt.Sprintf("and %d more", more))
	}
	return "running " + strings.Join(words, ", ")
}
