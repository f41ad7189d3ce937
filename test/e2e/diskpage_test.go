package e2e

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// aPath is a file or folder at the beginning of a row of the page; more may stand beside it.
var aPath = regexp.MustCompile("`([a-z.-]+)/?`")

// wantExplained checks that docs/disk.md has a row for everything in the cluster's directories.
func (c *cluster) wantExplained(t *testing.T) {
	t.Helper()
	page, err := os.ReadFile("../../docs/disk.md")
	if err != nil {
		t.Fatal(err)
	}
	_, data, ok := strings.Cut(string(page), "## The data directory")
	data, run, ok2 := strings.Cut(data, "## The run directory")
	run, _, ok3 := strings.Cut(run, "## Elsewhere")
	if !ok || !ok2 || !ok3 {
		t.Fatal("docs/disk.md: its sections are gone")
	}
	for dir, section := range map[string]string{c.DataDir: data, c.RunDir: run} {
		rows := map[string]bool{}
		for line := range strings.Lines(section) {
			first, _, _ := strings.Cut(strings.TrimPrefix(line, "|"), "|")
			for _, m := range aPath.FindAllStringSubmatch(first, -1) {
				rows[m[1]] = true
			}
		}
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) < 5 {
			t.Fatalf("%s: got %d entries, %v", dir, len(entries), err)
		}
		for _, e := range entries {
			if !rows[e.Name()] {
				t.Errorf("docs/disk.md says nothing of %s in %s", e.Name(), dir)
			}
		}
	}
}
