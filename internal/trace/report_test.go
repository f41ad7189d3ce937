package trace

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// sample is a catalogue and the records of a run. The order of the records and a second run of a test
// change nothing; a subtest that was skipped takes away what its parent cites.
func sample(t *testing.T, more ...string) Coverage {
	t.Helper()
	c, err := Parse(fstest.MapFS{
		"conformance.md": {Data: []byte("# Conformance\n- `C-007` [conformance] G.\n- `C-008` [conformance] H.\n")},
		"job.md":         {Data: []byte("# Job\n1. JOB-001 [doc-only] B.\n2. JOB-002 [api] C.\n3. JOB-003 [api] D. {clauses: one, two}\n")},
		"today.md":       {Data: []byte("# Open\n- JOB-002: is otherwise today.\n- JOB-003/one: likewise.\n")},
		"rs.md":          {Data: []byte("# ReplicaSet\n1. RS-001 [api] A.\n2. RS-002 [api] B. {clauses: one, two}\n3. RS-003 [api] C.\n")},
	})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	writeLines(t, filepath.Join(dir, "b.jsonl"),
		`{"test":"TestB","package":"github.com/kemudi/kemudi/internal/sim","ids":["RS-001","C-007"],"site":"internal/sim/b_test.go:12"}`,
		`{"test":"TestA","package":"github.com/kemudi/kemudi/internal/sim","ids":["RS-001","KEP-592","JOB-003/two"],"site":"internal/sim/a_test.go:9"}`,
		`{"test":"TestA","package":"github.com/kemudi/kemudi/internal/sim","ids":["RS-001","RS-002/one","RS-002/two"],"site":"internal/sim/a_test.go:7"}`)
	writeLines(t, filepath.Join(dir, "a.jsonl"), append(more,
		`{"test":"TestB","package":"github.com/kemudi/kemudi/internal/sim","ids":["RS-001"],"site":"internal/sim/b_test.go:12"}`,
		`{"test":"TestC","package":"github.com/kemudi/kemudi/internal/sim","ids":["RS-003"],"site":"internal/sim/c_test.go:4"}`,
		`{"test":"TestC/sub","package":"github.com/kemudi/kemudi/internal/sim","skipped":true}`)...)
	r, err := ReadRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	return Cover(c, r)
}

func TestReportListsProvedPartlyAndOpenByArea(t *testing.T) {
	cov := sample(t)
	var text, markdown bytes.Buffer
	if err := cov.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	if err := cov.WriteMarkdown(&markdown); err != nil {
		t.Fatal(err)
	}
	compare(t, "text.golden", text.Bytes())
	compare(t, "markdown.golden", markdown.Bytes())
}

func TestReportDiffersWhenWhatIsProvedDoes(t *testing.T) {
	kept, err := os.ReadFile("testdata/markdown.golden")
	if err != nil {
		t.Fatal(err)
	}
	const record = `{"test":"TestD","package":"github.com/kemudi/kemudi/internal/sim","ids":["JOB-002"],"site":"internal/sim/testdata/d.txt:1"}`
	for _, tc := range []struct {
		name                  string
		report                string
		more                  []string
		lost, behind, excused string
	}{
		{"the same", string(kept), nil, "", "", ""},
		{"a proof moves within its file", string(kept), []string{strings.ReplaceAll(record, `["JOB-002"],"site":"internal/sim/testdata/d.txt:1`, `["RS-001"],"site":"internal/sim/a_test.go:99`)}, "", "", ""},
		{"a proof is new", string(kept), []string{record}, "", "JOB-002: the records have it proved by internal/sim/testdata/d.txt, the report does not", ""},
		{"a proof is gone", strings.Replace(string(kept), "- RS-001", "- RS-003: `internal/sim/testdata/e.txt`\n- RS-001", 1), nil, "RS-003: the report has it proved by internal/sim/testdata/e.txt, the records do not", "", ""},
		{"a clause is gone", strings.Replace(string(kept), "- JOB-003/two", "- JOB-003/one: `internal/x/e.txt`\n- JOB-003/two", 1), nil, "JOB-003/one: the report has it proved by internal/x/e.txt, the records do not", "", ""},
		{"a proof is gone with a test that is skipped here alone", strings.Replace(string(kept), "- RS-001", "- RS-003: `internal/x/testdata/e.txt`\n- RS-001", 1), []string{`{"test":"TestE","package":"github.com/kemudi/kemudi/internal/x","skipped":true}`}, "", "", "RS-003: not shown by internal/x/testdata/e.txt here"},
		{"another title", strings.Replace(string(kept), "# Coverage", "# Covering", 1), nil, "", "the catalogue or the form of the report has changed", ""},
		{"fewer tests are skipped", string(kept) + "- `internal/sim.TestF`\n", nil, "", "", ""},
		{"a proof goes to another file", strings.Replace(string(kept), "- RS-001: ", "- RS-001: `internal/x/e.txt`, ", 1), nil, "", "RS-001: no longer proved by internal/x/e.txt, but elsewhere", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := sample(t, tc.more...).Compare([]byte(tc.report))
			for _, part := range []struct {
				name, want string
				got        []string
			}{{"lost", tc.lost, d.Lost}, {"behind", tc.behind, d.Behind}, {"excused", tc.excused, d.Excused}} {
				if got := strings.Join(part.got, "\n"); got != part.want {
					t.Errorf("%s: got %q, want %q", part.name, got, part.want)
				}
			}
		})
	}
}

func TestDamagedRecordIsAnError(t *testing.T) {
	dir := t.TempDir()
	writeLines(t, filepath.Join(dir, "a.jsonl"), `{"test":"TestB","pack`)
	if _, err := ReadRun(dir); err == nil {
		t.Error("a record cut off in the middle was accepted")
	}
}

func TestRecordsOfSkippedTestsAreKept(t *testing.T) {
	dir := t.TempDir()
	if err := (Record{Test: "TestA/child", Package: "p", Skipped: true}).Keep(dir); err != nil {
		t.Fatal(err)
	}
	r, err := ReadRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"p.TestA/child"}; !slices.Equal(r.Skipped, want) {
		t.Errorf("kept: got %q, want %q", r.Skipped, want)
	}
}

func writeLines(t *testing.T, name string, lines ...string) {
	t.Helper()
	var b bytes.Buffer
	for _, l := range lines {
		b.WriteString(l + "\n")
	}
	if err := os.WriteFile(name, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// compare checks got against a file of testdata.
func compare(t *testing.T, name string, got []byte) {
	t.Helper()
	want, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
	}
}
