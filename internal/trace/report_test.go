package trace

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"
)

func TestReportListsCoveredAndOpenByArea(t *testing.T) {
	c, err := Parse(fstest.MapFS{
		"job.md": {Data: []byte("# Job\n1. JOB-001 [doc-only] B.\n2. JOB-002 [api] C.\n")},
		"rs.md":  {Data: []byte("# ReplicaSet\n1. RS-001 [api] A.\n2. RS-002 [api] B.\n")},
	})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	// The order of the records and a second run of a test change nothing.
	writeLines(t, filepath.Join(dir, "b.jsonl"),
		`{"test":"TestB","package":"github.com/kemudi/kemudi/internal/sim","ids":["RS-001","C-007"]}`,
		`{"test":"TestA","package":"github.com/kemudi/kemudi/internal/sim","ids":["RS-001","KEP-592"]}`)
	writeLines(t, filepath.Join(dir, "a.jsonl"),
		`{"test":"TestB","package":"github.com/kemudi/kemudi/internal/sim","ids":["RS-001"]}`)
	p, err := ReadProofs(dir)
	if err != nil {
		t.Fatal(err)
	}
	var text, markdown bytes.Buffer
	cov := Cover(c, p)
	if err := cov.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	if err := cov.WriteMarkdown(&markdown); err != nil {
		t.Fatal(err)
	}
	compare(t, "text.golden", text.Bytes())
	compare(t, "markdown.golden", markdown.Bytes())
}

func TestDamagedRecordIsAnError(t *testing.T) {
	dir := t.TempDir()
	writeLines(t, filepath.Join(dir, "a.jsonl"), `{"test":"TestB","pack`)
	if _, err := ReadProofs(dir); err == nil {
		t.Error("a record cut off in the middle was accepted")
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
