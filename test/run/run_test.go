package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kemudi/kemudi/internal/trace"
)

func TestEveryPackageIsInOnePass(t *testing.T) {
	all := []string{"cmd/kemudi", "internal/cache", "internal/cachet", "internal/container", "internal/podnet/nft", "internal/sound", "test/e2e"}
	for i := range all {
		all[i] = modulePath + all[i]
	}
	var got strings.Builder
	for _, p := range plan(all, []string{all[1], all[4]}, []string{all[5]}) {
		fmt.Fprintln(&got, p.name, p.args([]string{"-count=1"}))
	}
	want := strings.ReplaceAll(`with the race detector [-json -vet=off -count=1 -race M/internal/cache]
with pointers checked [-json -vet=off -count=1 -gcflags=M/...=-d=checkptr M/internal/sound]
without the race detector [-json -vet=off -count=1 M/cmd/kemudi M/internal/cachet]
on the machine itself, with the race detector [-json -vet=off -count=1 -race -p=1 M/internal/podnet/nft]
on the machine itself [-json -vet=off -count=1 -p=1 M/internal/container M/test/e2e]
`, "M/", modulePath)
	if got.String() != want {
		t.Errorf("got:\n%swant:\n%s", got.String(), want)
	}
}

// script is a clock and the output that goes by it.
type script struct {
	*output
	text strings.Builder
	time time.Time
}

func newScript(packages int) *script {
	s := &script{time: time.Unix(0, 0)}
	s.output = newOutput(&s.text, pass{name: "of a script", packages: make([]string, packages)}, func() time.Time { return s.time })
	return s
}

// passes lets time pass, a second at a time.
func (s *script) passes(seconds int) {
	for range seconds {
		s.time = s.time.Add(time.Second)
		s.tick()
	}
}

func (s *script) event(action, pkg, test, text string) {
	s.line(fmt.Appendf(nil, `{"Action":%q,"Package":%q,"Test":%q,"Output":%q}`, action, modulePath+pkg, test, text))
}

// TestFailuresAreToldInShort gives a log that is longer than what is kept of it.
func TestFailuresAreToldInShort(t *testing.T) {
	s := newScript(3)
	say := func(pkg, test string, lines ...string) {
		for _, line := range lines {
			s.event("output", pkg, test, line+"\n")
		}
	}
	logged := slices.Repeat([]string{"        time=now level=INFO msg=\"much happens\""}, 1000)
	s.event("run", "a", "TestWhole", "")
	s.event("run", "a", "TestWhole/part", "")
	say("a", "TestWhole/part", logged...)
	say("a", "TestWhole/part", "    a_test.go:7: got 1,", "        want 2", "    a_test.go:9: log of the server:")
	say("a", "TestWhole/part", logged...)
	say("a", "TestWhole/part", "    a_test.go:11: and this")
	say("a", "TestWhole/part", "    --- FAIL: TestWhole/part (1.00s)")
	s.event("fail", "a", "TestWhole/part", "")
	say("a", "TestWhole", "--- FAIL: TestWhole (1.00s)")
	s.event("fail", "a", "TestWhole", "")
	s.event("fail", "a", "", "")

	say("b", "TestOver", logged...)
	say("b", "TestOver", "panic: test timed out after 15m0s", "\trunning tests:", "\t\tTestOver (14m0s)", "goroutine 1 [running]:")
	say("b", "TestOver", slices.Repeat([]string{"testing.go:2682"}, 500)...)
	say("b", "", "FAIL\tb\t900s")
	s.event("fail", "b", "", "")

	got := short([]failure{{briefs: s.mu.briefs}})
	const logs = "        time=now level=INFO msg=\"much happens\"\n"
	head := "FAILED a TestWhole/part, tests of a script\n    a_test.go:7: got 1,\n        want 2\n    a_test.go:9: log of the server:\n" + strings.Repeat(logs, entryLines-1) +
		"    a_test.go:11: and this\nFAILED b, tests of a script\npanic: test timed out after 15m0s\n\trunning tests:\n\t\tTestOver (14m0s)\ngoroutine 1 [running]:\n"
	if !strings.HasPrefix(got, head) {
		t.Errorf("got\n%s\nwant it to begin\n%s", got, head)
	}
	if !strings.Contains(got, "lines more, see above\n") {
		t.Errorf("got\n%s\nwant it to say what is left out", got)
	}

	var many []brief
	for i := range 300 {
		many = append(many, brief{title: fmt.Sprint("test ", i), said: slices.Repeat([]string{"    x_test.go:1: wrong\n"}, 50)})
	}
	got = short([]failure{{briefs: many}})
	if n := strings.Count(got, "\n"); n > shortLines+3*leastLines || !strings.HasSuffix(got, "more failures\n") {
		t.Errorf("of 300 failures: got %d lines, want about %d\n%s", n, shortLines, got)
	}
}

func TestTestsAreTriedAgainByTheirWholeNames(t *testing.T) {
	failed := []string{"TestA/x/y.z", "TestA/x", "TestA", "TestB"}
	if got, want := (pass{tests: ends(failed), times: 3, packages: []string{"p"}}).args([]string{"-count=1"}), `[-json -vet=off -count=1 -run=^TestA$/^x$/^y\.z$|^TestB$ -count=3 p]`; fmt.Sprint(got) != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestWhatTheRaceDetectorLeavesOutRunsWithoutIt(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"go.mod":         module["go.mod"],
		"good/g_test.go": module["good/g_test.go"],
		"both/g.go":      "package both\n",
		"both/g_test.go": "package both\nimport \"testing\"\nfunc TestOfBoth(t *testing.T) {}\n",
		"both/k_test.go": "//go:build !race\n\npackage both\nimport \"testing\"\nfunc TestKills(t *testing.T) {}\nfunc TestKillsMore(t *testing.T) {}\n",
	})
	t.Chdir(dir)
	t.Setenv("GOFLAGS", "")
	r := newRunner(options{race: "./both ./good"}, "go", io.Discard)
	passes, err := r.passes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, p := range passes {
		fmt.Fprintln(&got, p.name, p.lane() == raced, p.args(nil))
	}
	want := strings.ReplaceAll(`that the race detector leaves out true [-json -vet=off -run=^TestKills$|^TestKillsMore$ M/both]
with the race detector true [-json -vet=off -race M/both M/good]
`, "M/", modulePath)
	if got.String() != want {
		t.Errorf("got:\n%swant:\n%s", got.String(), want)
	}
}

func TestWhatTestsWriteIsInMemoryIfThereIsEnough(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"go.mod":         module["go.mod"],
		"good/g.go":      "package good\n",
		"good/g_test.go": "package good\nimport (\"os\"; \"testing\")\nfunc TestDir(t *testing.T) { t.Skip(\"writes to \" + os.TempDir()) }\n",
	})
	t.Chdir(dir)
	t.Setenv("GOFLAGS", "")
	t.Setenv(trace.DirEnv, "")
	var text strings.Builder
	if err := newRunner(options{times: 1, memory: true, flags: "-count=1"}, "go", &text).run(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := "good TestDir: writes to " + filepath.Join(shm, fmt.Sprint("kt", os.Getpid()))
	if err := enoughMemory(); err != nil {
		want = "tests write to the disk: " // with the reason
	}
	if !strings.Contains(text.String(), want) {
		t.Errorf("got\n%s\nwant it to contain %q", text.String(), want)
	}
	if _, err := os.Stat(filepath.Join(shm, fmt.Sprint("kt", os.Getpid()))); err == nil {
		t.Error("what was written is still there")
	}
}

func TestSilenceIsBrokenBySayingWhatRuns(t *testing.T) {
	s := newScript(3)
	s.passes(25)
	s.event("start", "a", "", "")
	s.event("run", "a", "TestX", "")
	s.event("start", "b", "", "")
	s.passes(5)
	s.event("run", "a", "TestX/sub", "")
	s.event("run", "a", "TestY", "")
	s.event("pause", "a", "TestY", "")
	s.passes(12)
	s.event("output", "b", "", "ok  \tb\t3s\n")
	s.event("pass", "b", "", "")
	s.passes(19)
	s.event("cont", "a", "TestY", "")
	s.passes(2)
	want := `     ...  tests of a script, 20s, 0 of 3 packages: compiling
     ...  tests of a script, 40s, 0 of 3 packages: running a TestX (15s), b (15s)
ok  	b	3s
     ...  tests of a script, 1m2s, 1 of 3 packages: running a TestX (37s), a TestY (1s)
`
	if got := s.text.String(); got != want {
		t.Errorf("got:\n%swant:\n%s", got, want)
	}
}

// module is a tree of packages with tests.
var module = map[string]string{
	"go.mod":         "module github.com/kemudi/kemudi\n\ngo 1.26\n",
	"good/g_test.go": "package good\nimport \"testing\"\nfunc TestFine(t *testing.T) { t.Log(\"not of interest\") }\n",
	"bad/b_test.go": `package bad
import "testing"
func TestFine(t *testing.T) { t.Log("not of interest") }
func TestWrong(t *testing.T) { t.Run("in part", func(t *testing.T) { t.Error("got 1, want 2") }) }
func TestNotHere(t *testing.T) { t.Log("looked for it"); t.Skip("needs root: a reason") }
`,
	"broken/b_test.go": "package broken\nfunc f() { none() }\n",
	"crash/c_test.go":  "package crash\nimport \"testing\"\nfunc TestCrash(t *testing.T) { t.Log(\"said before\"); panic(\"aargh\") }\n",
	"plain/p.go":       "package plain\n",
}

func TestFailuresAndSkippedTestsStandAtTheEnd(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, module)
	t.Chdir(dir)
	t.Setenv("GOFLAGS", "")
	t.Setenv(trace.DirEnv, filepath.Join(dir, "trace"))
	play := func(o options) (string, error) {
		var text strings.Builder
		err := newRunner(o, "go", &text).run(t.Context())
		return text.String(), err
	}
	got, err := play(options{times: 1, flags: "-count=1 -shuffle=7"})
	if !errors.Is(err, errTests) {
		t.Errorf("got error %v, want %v", err, errTests)
	}
	head, end, ok := strings.Cut(got, "--- 1 tests were skipped\nbad TestNotHere: needs root: a reason\n--- failures of all passes, repeated from above:\n")
	if !ok {
		t.Fatalf("got no list of skipped tests in:\n%s", got)
	}
	if !regexp.MustCompile(`(?m)^ok  \t\S*/good\t`).MatchString(head) || strings.Contains(end, "/good") {
		t.Errorf("the good package: got\n%s", got)
	}
	for _, text := range []string{head, end} {
		for _, want := range []string{"--- FAIL: TestWrong", "b_test.go:4: got 1, want 2", "undefined: none", "panic: aargh", "said before", "FAIL\tgithub.com/kemudi/kemudi/bad"} {
			if !strings.Contains(text, want) {
				t.Errorf("%q is missing in:\n%s", want, text)
			}
		}
	}
	if n := strings.Count(head, "-test.shuffle 7"); n != 2 {
		t.Errorf("the order of tests is told %d times, want it of the two packages that fail:\n%s", n, head)
	}
	if strings.Contains(got, "not of interest") || strings.Contains(got, "plain") {
		t.Errorf("got more than is of interest:\n%s", got)
	}

	if kept, err := trace.ReadRun(filepath.Join(dir, "trace")); err != nil || !slices.Equal(kept.Skipped, []string{"bad.TestNotHere"}) {
		t.Errorf("got the records %v, %v; want that of the skipped test", kept.Skipped, err)
	}

	got, err = play(options{times: 2, only: "^good$", flags: "-count=1", busy: false})
	if err != nil || strings.Count(got, "/good\t") != 2 || !strings.Contains(got, "...  round 2 of 2\n") || strings.Count(got, "tests without the race detector: passed") != 2 {
		t.Errorf("twice: got %v\n%s", err, got)
	}
}

func TestWhatIsCheckedBesideTheTestsMustFindNothing(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"go.mod": module["go.mod"], "good/g_test.go": module["good/g_test.go"]})
	for name, text := range map[string]string{"clean": "exit 0", "finds": "echo g.go: not formatted; exit 3"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	t.Setenv("GOFLAGS", "")
	t.Setenv(trace.DirEnv, "")
	for _, race := range []string{"", "./none/..."} { // with a race detector, the rest gives way to it
		for check, want := range map[string]error{"./clean": nil, "./finds": errTests} {
			var text strings.Builder
			err := newRunner(options{times: 2, again: 1, race: race, check: check, flags: "-count=1"}, "go", &text).run(t.Context())
			if !errors.Is(err, want) || strings.Count(text.String(), "/good\t") != 2 {
				t.Errorf("%s: got %v, want %v, and two rounds of tests\n%s", check, err, want, text.String())
			}
			if told := strings.Count(text.String(), "g.go: not formatted\n"); (told == 3) != (want != nil) {
				t.Errorf("%s: what was found is told %d times, want it at once, at the end and in short\n%s", check, told, text.String())
			}
			if strings.Contains(text.String(), "./finds: exit status 3\n") != (want != nil) {
				t.Errorf("%s: got\n%s", check, text.String())
			}
		}
	}
}

func TestFailureThatDoesNotComeAgainIsToldAndLetPass(t *testing.T) {
	// once fails the first time that it runs for name.
	once := func(name, how string) string {
		return fmt.Sprintf(`package %s
import ("os"; "testing")
func TestOnce(t *testing.T) {
	f, err := os.OpenFile("../ran-%[1]s", os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil { f.Close(); %s }
}
`, name, how)
	}
	packages := map[string]string{
		"flake":  once("flake", `t.Error("by chance")`),
		"second": once("second", `t.Error("by chance")`),
		"third":  once("third", `t.Error("by chance")`),
		"fourth": once("fourth", `t.Error("by chance")`),
		"slips":  once("slips", `t.Log("by chance"); _ = os.Args[len(os.Args)]`) + "func TestLast(*testing.T) { os.WriteFile(\"../last\", nil, 0o600) }\n",
		"panics": once("panics", `os.Args = Last(nil)`),
		"leaves": "package leaves\nimport (\"os\"; \"testing\")\nfunc TestMain(m *testing.M) { m.Run(); if _, err := os.Stat(\"../ran-leaves\"); err != nil { os.WriteFile(\"../ran-leaves\", nil, 0o600); os.Exit(1) } }\nfunc TestFine(t *testing.T) {}\n",
		"races":  once("races", `t.Error("WARNING: DATA RACE")`),
		"bad":    "package bad\nimport \"testing\"\nfunc TestBad(t *testing.T) { t.Error(\"always\") }\n",
	}
	for _, c := range []struct {
		packages string // that there are
		passes   bool
	}{
		{"flake", true},
		{"flake second", true},
		{"flake second third", true},
		{"flake second third fourth", false}, // too many for chance
		{"bad", false},
		{"flake bad", false},
		{"slips", true},
		{"slips flake", true},
		{"panics", false}, // though it would not again
		{"races", false},
		{"leaves", false},
	} {
		t.Run(c.packages, func(t *testing.T) {
			dir := t.TempDir()
			files := map[string]string{"go.mod": module["go.mod"]}
			for pkg := range strings.FieldsSeq(c.packages) {
				files[pkg+"/x_test.go"] = packages[pkg]
			}
			if c.packages == "panics" {
				files["panics/x.go"] = "package panics\nfunc Last(of []string) []string { return of[len(of)-1:] }\n"
			}
			write(t, dir, files)
			t.Chdir(dir)
			t.Setenv("GOFLAGS", "")
			t.Setenv(trace.DirEnv, "")
			var text strings.Builder
			err := newRunner(options{times: 1, again: 2, flags: "-count=1"}, "go", &text).run(t.Context())
			if (err == nil) != c.passes {
				t.Errorf("got error %v, want that it passes: %v\n%s", err, c.passes, text.String())
			}
			if told := strings.Contains(text.String(), "--- FLAKES: this failed, then passed 2 times."); told != c.passes {
				t.Errorf("a flake is told: %v, want %v\n%s", told, c.passes, text.String())
			}
			if _, err := os.Stat("last"); strings.Contains(c.packages, "slips") && err != nil {
				t.Errorf("the tests after the one that ended their process did not run: %v", err)
			}
			if n := strings.Count(text.String(), "by chance"); c.passes && n < 2*len(strings.Fields(c.packages)) {
				t.Errorf("what failed is told %d times, want it at once and at the end\n%s", n, text.String())
			}
		})
	}
}

// write makes files in dir.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSkippedTestsOfAChildProcessAreSeen(t *testing.T) {
	s := newScript(1)
	for _, line := range []string{"=== RUN TestA\n", "    a_test.go:1:     c_test.go:7: no root\n", "    --- SKIP: TestChild (0.00s)\n", "--- PASS: TestA\n"} {
		s.event("output", "a", "TestA", line)
	}
	s.event("pass", "a", "TestA", "")
	if got := fmt.Sprint(s.mu.skipped); got != "map[a TestChild:no root]" {
		t.Errorf("got %s", got)
	}
}

func TestBusyProgramEndsWithItsInput(t *testing.T) {
	in, out := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	context.AfterFunc(ctx, func() { out.Close() })
	cancel()
	spin(in)
}
