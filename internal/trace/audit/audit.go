// Package audit tries whether tests notice that what they cite is broken. It draws
// requirements that a test run has proved, breaks what is expected beside a
// citation of each, in a copy of the tree, and runs the test: it must fail.
//
// What lives here: the draw, the copy, the runs and what is printed of them. What to break in a file
// is the matter of package sites.
package audit

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/internal/trace/sites"
)

// Options say what to audit. All but Only are needed.
type Options struct {
	Root string // of the tree
	Dir  string // with the records of a test run; the copy of the tree is made below it
	N    int    // how many IDs to draw
	Seed uint64 // of the draw: the same records and seed draw the same
	Only string // a pattern of the packages whose citations are drawn; empty: all
	Go   string // the go command
	Out  io.Writer
}

// A draw is one citation of one ID.
type draw struct {
	id   string // with its clause
	text string
	trace.Proof
}

// Run audits, prints as it goes, and returns how many tests have passed
// although what they cite was broken.
func Run(ctx context.Context, o Options) (passed int, err error) {
	catalogue, err := trace.Embedded()
	if err != nil {
		return 0, fmt.Errorf("read catalogue: %w", err)
	}
	run, err := trace.ReadRun(o.Dir)
	if err != nil {
		return 0, err
	}
	only, err := regexp.Compile(o.Only)
	if err != nil {
		return 0, fmt.Errorf("pattern of packages: %w", err)
	}
	copied, err := copyTree(o.Root, filepath.Join(o.Dir, "audit"))
	if err != nil {
		return 0, fmt.Errorf("copy the tree: %w", err)
	}
	defer os.RemoveAll(copied)
	goroot, err := exec.CommandContext(ctx, o.Go, "env", "GOROOT").Output()
	if err != nil {
		return 0, fmt.Errorf("ask go for its root: %w", err)
	}
	fmt.Fprintf(o.Out, "seed %d\n", o.Seed)
	a := &auditor{Options: o, copied: copied, goroot: strings.TrimSpace(string(goroot)), unbroken: map[string]string{}}
	count := map[verdict]int{}
	for _, d := range drawn(catalogue, proofsOf(run, only), o.N, o.Seed) {
		v, err := a.audit(ctx, d)
		if err != nil {
			return 0, fmt.Errorf("%s at %s: %w", d.id, d.Site, err)
		}
		count[v]++
	}
	fmt.Fprintf(o.Out, "\n%d break as they should, %d STILL PASS, %d are for a person\n", count[breaks], count[passes], count[person])
	return count[passes], nil
}

// proofsOf returns the proofs, by ID, of the packages that only matches.
func proofsOf(r *trace.Run, only *regexp.Regexp) map[string][]trace.Proof {
	out := map[string][]trace.Proof{}
	for id, proofs := range r.Proofs {
		proofs = slices.DeleteFunc(slices.Clone(proofs), func(p trace.Proof) bool {
			pkg, _ := splitTest(p.Test)
			return !only.MatchString(pkg)
		})
		if len(proofs) > 0 {
			out[id] = proofs
		}
	}
	return out
}

// drawn chooses n of the IDs that are proved, and of each one place.
func drawn(c *trace.Catalogue, all map[string][]trace.Proof, n int, seed uint64) (out []draw) {
	rng := rand.New(rand.NewPCG(seed, 0))
	ids := slices.Sorted(maps.Keys(all))
	rng.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	for _, id := range ids[:min(n, len(ids))] {
		line, _, _ := strings.Cut(id, "/")
		req, _ := c.Lookup(line)
		proofs := all[id]
		out = append(out, draw{id, req.Text, proofs[rng.IntN(len(proofs))]})
	}
	return out
}

// A verdict is what became of one draw.
type verdict int

const (
	breaks verdict = iota // the test fails, as it should
	passes                // it does not
	person                // somebody has to look
)

type auditor struct {
	Options
	copied   string
	goroot   string
	unbroken map[string]string // what becomes of a test as it is
}

// audit breaks one site and runs its test with and without that.
func (a *auditor) audit(ctx context.Context, d draw) (verdict, error) {
	fmt.Fprintf(a.Out, "\n%s %s\n  %s  %s\n", d.id, d.text, d.Site, d.Test)
	_, number, _ := strings.Cut(d.Site, ":")
	line, err := strconv.Atoi(number)
	if err != nil {
		return person, fmt.Errorf("read the line of the site: %w", err)
	}
	name := filepath.Join(a.copied, d.File())
	data, err := os.ReadFile(name)
	if err != nil {
		return person, err
	}
	b, err := sites.BreakAt(d.File(), data, line, d.id)
	if err != nil {
		return a.show(err.Error(), data, line), nil
	}
	for _, l := range b.Lines {
		fmt.Fprintf(a.Out, "  %s:%d\n  - %s\n  + %s\n", d.File(), l.Number, l.Was, strings.ReplaceAll(l.Now, "\n", "\n  + "))
	}
	if err := replace(name, b.Data); err != nil {
		return person, err
	}
	got := a.test(ctx, d)
	if err := replace(name, data); err != nil {
		return person, err
	}
	if got == "PASS" {
		fmt.Fprintln(a.Out, "  STILL PASSES")
		return passes, nil
	}
	if got != "FAIL" && got != "PANIC" {
		return a.show("the broken test does not run: "+got, data, line), nil
	}
	if a.unbroken[d.Test] == "" {
		a.unbroken[d.Test] = a.test(ctx, d)
	}
	if got := a.unbroken[d.Test]; got != "PASS" {
		return a.show("the test alone does not pass here: "+got, data, line), nil
	}
	fmt.Fprintln(a.Out, "  breaks as it should")
	return breaks, nil
}

// show prints the lines about a site for a person to judge.
func (a *auditor) show(why string, data []byte, line int) verdict {
	fmt.Fprintf(a.Out, "  for a person: %s\n", strings.TrimPrefix(why, "for a person: "))
	lines := strings.Split(string(data), "\n")
	for n := max(1, line-2); n <= min(len(lines), line+12); n++ {
		fmt.Fprintf(a.Out, "  %5d  %s\n", n, lines[n-1])
	}
	return person
}

// test runs the test of a draw in the copy and returns PASS, FAIL, PANIC, or the end of what was
// printed if it was none of them.
func (a *auditor) test(ctx context.Context, d draw) string {
	pkg, test := splitTest(d.Test)
	cmd := exec.CommandContext(ctx, a.Go, "test", "-trimpath", "-count=1", "-v", "-timeout=10m", "-run", pattern(test), "./"+pkg)
	cmd.Dir = a.copied
	// Tests that look for the source of a library need what -trimpath takes from them.
	cmd.Env = append(os.Environ(), trace.DirEnv+"=", "GOROOT="+a.goroot, "KEMUDI_BIN="+filepath.Join(a.copied, "bin", "kemudi"))
	out, _ := cmd.CombinedOutput()
	return outcome(out, test)
}

var panics = regexp.MustCompile(`(?m)^panic: `)

// outcome finds the result of a test in what go test -v prints.
func outcome(out []byte, test string) string {
	for _, word := range []string{"FAIL", "PASS"} {
		if regexp.MustCompile(`(?m)^ *--- ` + word + `: ` + regexp.QuoteMeta(trimSeed(test)) + `[ /]`).Match(out) {
			return word
		}
	}
	// What is told of a failure may be nil where there is none.
	if panics.Match(out) && !bytes.Contains(out, []byte("panic: test timed out")) {
		return "PANIC"
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return strings.Join(lines[max(0, len(lines)-5):], "\n    ")
}

// splitTest takes <package>.<test> apart.
func splitTest(name string) (pkg, test string) {
	dir, last := path.Split(name)
	if i := strings.Index(name, ".Test"); i >= 0 { // a subtest may have a slash in its name
		return name[:i], name[i+1:]
	}
	base, test, _ := strings.Cut(last, ".")
	return dir + base, test
}

// seed matches the last part of the name of a random test, which is another each time.
var seed = regexp.MustCompile(`/[0-9]{9,}$`)

func trimSeed(test string) string { return seed.ReplaceAllString(test, "") }

// pattern matches one test and those above it.
func pattern(test string) string {
	parts := strings.Split(trimSeed(test), "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	return strings.Join(parts, "/")
}

// replace writes a file anew: what it was may be a link to the file of the tree.
func replace(name string, data []byte) error {
	if err := os.Remove(name); err != nil {
		return fmt.Errorf("replace: %w", err)
	}
	if err := os.WriteFile(name, data, 0o644); err != nil {
		return fmt.Errorf("replace: %w", err)
	}
	return nil
}

// copyTree makes to a copy of the tree from, of hard links where the file system has them. Hidden
// folders are left out.
func copyTree(from, to string) (string, error) {
	if err := os.RemoveAll(to); err != nil {
		return "", err
	}
	return to, filepath.WalkDir(from, func(name string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, name)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		switch {
		case d.IsDir() && rel != "." && strings.HasPrefix(d.Name(), "."):
			return filepath.SkipDir
		case d.IsDir():
			return os.MkdirAll(target, 0o755)
		case d.Type()&os.ModeSymlink != 0:
			to, err := os.Readlink(name)
			if err != nil {
				return err
			}
			return os.Symlink(to, target)
		case !d.Type().IsRegular():
			return nil
		}
		if os.Link(name, target) == nil {
			return nil
		}
		return copyFile(name, target)
	})
}

func copyFile(name, target string) error {
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	return os.WriteFile(target, data, info.Mode().Perm())
}
