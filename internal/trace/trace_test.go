package trace

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

var siteLine = regexp.MustCompile(`:[0-9]+\b`)

// fakeTB stands in for a test whose end can be watched from outside.
type fakeTB struct {
	testing.TB
	errors   []string
	cleanups []func()
	failed   bool
	skipped  bool
}

func (f *fakeTB) Helper()           {}
func (f *fakeTB) Name() string      { return "TestFake" }
func (f *fakeTB) Failed() bool      { return f.failed }
func (f *fakeTB) Skipped() bool     { return f.skipped }
func (f *fakeTB) Cleanup(fn func()) { f.cleanups = append(f.cleanups, fn) }
func (f *fakeTB) Error(args ...any) { f.fail() }
func (f *fakeTB) Errorf(format string, args ...any) {
	f.fail()
	f.errors = append(f.errors, format)
}
func (f *fakeTB) fail() { f.failed = true }
func (f *fakeTB) end() {
	for _, fn := range f.cleanups {
		fn()
	}
}

func TestRecordsOnlyPassedTests(t *testing.T) {
	cases := map[string]struct {
		failed, skipped bool
		want            string
	}{
		"a passed test leaves a record":    {want: `{"test":"TestFake","package":"github.com/kemudi/kemudi/internal/trace","ids":["RS-006","C-124","KEP-592"],"site":"internal/trace/trace_test.go:LINE"}` + "\n"},
		"a failed test leaves nothing":     {failed: true},
		"a skipped test leaves nothing":    {skipped: true},
		"failed and skipped leave nothing": {failed: true, skipped: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "trace")
			t.Setenv(DirEnv, dir)
			fake := &fakeTB{}
			Proves(fake, "RS-006", "C-124", "KEP-592")
			if fake.failed {
				t.Fatalf("known IDs were refused: %q", fake.errors)
			}
			fake.failed, fake.skipped = tc.failed, tc.skipped
			fake.end()
			got, err := os.ReadFile(filepath.Join(dir, "github.com_kemudi_kemudi_internal_trace.jsonl"))
			if err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
			if got := siteLine.ReplaceAllString(string(got), ":LINE"); got != tc.want {
				t.Errorf("record: got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestUnknownIDFailsTheTest(t *testing.T) {
	t.Setenv(DirEnv, "")
	for _, id := range []string{"", "RS-999", "rs-006", "C-000", "C-123", "C-450", "C-12", "RS-006/Job", "KEP-0", "KEP-", "NOPE-001"} {
		fake := &fakeTB{}
		Proves(fake, id)
		if !fake.failed {
			t.Errorf("Proves(%q) did not fail the test", id)
		}
	}
	fake := &fakeTB{}
	Proves(fake)
	if !fake.failed {
		t.Error("Proves without IDs did not fail the test")
	}
}

func TestCitationHasFewIDs(t *testing.T) {
	t.Setenv(DirEnv, "")
	fake := &fakeTB{}
	if Proves(fake, "RS-001", "RS-002", "RS-003", "RS-004", "RS-005"); fake.failed {
		t.Errorf("five IDs were refused: %q", fake.errors)
	}
	if Proves(fake, "RS-001", "RS-002", "RS-003", "RS-004", "RS-005", "RS-006"); !fake.failed {
		t.Error("six IDs were taken")
	}
}

func TestLineWithClausesIsCitedByThem(t *testing.T) {
	c, err := Parse(fstest.MapFS{"a.md": {Data: []byte("1. RS-001 [api] A. {clauses: one, two}\n2. RS-002 [api] B.\n")}})
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]bool{"RS-001": false, "RS-001/one": true, "RS-001/three": false, "RS-002": true, "RS-002/one": false, "RS-002/": false} {
		if err := c.citable(id); (err == nil) != want {
			t.Errorf("%s: got error %v, want that it may be cited: %v", id, err, want)
		}
	}
}

func TestScriptProvesByTheCommandThatFollows(t *testing.T) {
	for name, tc := range map[string]struct {
		play   func(*Script)
		failed bool
		lines  int
	}{
		"a command passes":              {func(s *Script) { s.Cites(3, "RS-001, RS-002"); s.Passed(); s.Passed(); s.End() }, false, 1},
		"no command follows":            {func(s *Script) { s.Passed(); s.Cites(3, "RS-001"); s.End() }, true, 0},
		"a citation follows a citation": {func(s *Script) { s.Cites(3, "RS-001"); s.Cites(4, "RS-002"); s.Passed() }, true, 0},
		"a citation names nothing":      {func(s *Script) { s.Cites(3, " "); s.Passed() }, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv(DirEnv, dir)
			fake := &fakeTB{}
			tc.play(NewScript(fake, "testdata/a.txt"))
			fake.end()
			data, err := os.ReadFile(filepath.Join(dir, "github.com_kemudi_kemudi_internal_trace.jsonl"))
			if err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
			if got := strings.Count(string(data), `"site":"internal/trace/testdata/a.txt:3"`); got != tc.lines || fake.failed != tc.failed {
				t.Errorf("got %d records and failed: %v, want %d and %v\n%s", got, fake.failed, tc.lines, tc.failed, data)
			}
		})
	}
}

func TestCatalogueReadsEveryForm(t *testing.T) {
	c, err := Parse(fstest.MapFS{"a.md": {Data: []byte(strings.Join([]string{
		"# Replica sets",
		"1. RS-001 [controller] Plain,",
		"   in two lines.",
		"2. `RS-002` [api][node] Two tags.",
		"- `RS-K01` [api] [doc-only] Own knowledge,",
		"  in parts. {clauses: Job, after-it}",
		"- RS-002: a remark on a requirement defines nothing.",
		"## A section",
		"```",
		"# no heading",
		"1. RS-009 [api] No requirement.",
		"```",
		"# Jobs",
		"3. `JOB-001` [doc-only] Background.",
	}, "\n"))}})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := c.Len(), 4; got != want {
		t.Errorf("requirements: got %d, want %d", got, want)
	}
	if r, _ := c.Lookup("RS-K01"); r.Text != "Own knowledge, in parts." || r.Background() || len(r.Tags) != 2 || !slices.Equal(r.Units(), []string{"RS-K01/Job", "RS-K01/after-it"}) {
		t.Errorf("RS-K01: got %+v", r)
	}
	if r, _ := c.Lookup("JOB-001"); !r.Background() {
		t.Errorf("JOB-001 is not background: %+v", r)
	}
	if r, _ := c.Lookup("RS-001"); r.Text != "Plain, in two lines." {
		t.Errorf("RS-001: got text %q", r.Text)
	}
	if len(c.Areas) != 2 || c.Areas[0].Title != "Replica sets" || c.Areas[1].Title != "Jobs" {
		t.Errorf("areas: got %+v", c.Areas)
	}
}

func TestCatalogueRefusesDuplicateID(t *testing.T) {
	_, err := Parse(fstest.MapFS{"a.md": {Data: []byte("1. RS-001 [api] A.\n2. RS-001 [api] B.\n")}})
	if err == nil || !strings.Contains(err.Error(), "a.md:2: RS-001 is already defined in a.md") {
		t.Errorf("error: got %v", err)
	}
}

func TestEmbeddedCatalogueIsWhole(t *testing.T) {
	c, err := Embedded()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := c.Len(), 2105+354; got != want {
		t.Errorf("requirements in docs/requirements: got %d, want %d", got, want)
	}
}

func TestReasonsAreOfLinesThatAre(t *testing.T) {
	_, err := Parse(fstest.MapFS{"a.md": {Data: []byte("1. RS-001 [api] A.\n")}, reasons: {Data: []byte("- RS-002: why.\n")}})
	if err == nil || !strings.Contains(err.Error(), `today.md: unknown requirement ID "RS-002"`) {
		t.Errorf("error: got %v", err)
	}
}
