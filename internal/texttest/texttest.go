package texttest

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// Update is -update: write what the tests get in place of what they want.
var Update = flag.Bool("update", false, "write what the tests get into their text files")

// Run makes a subtest of every file that matches pattern. play, which is also told the
// file's name, returns the text as it is now: what the file asks, with the answers of today. A line that
// differs fails the test, or goes into the file.
func Run(t *testing.T, pattern string, play func(t *testing.T, file, text string) string) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no files %s: %v", pattern, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if got := play(t, file, string(text)); !t.Failed() {
				File(t, file, got)
			}
		})
	}
}

// File fails the test if file does not hold got, or lets it hold it.
func File(t *testing.T, file, got string) {
	t.Helper()
	if *Update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s\nRun with -update if the change is meant.", diff(file, got, string(want)))
	}
}

// A Section is one part of a file: its name, the lines below that, and the number of
// the line that holds the name.
type Section struct {
	Name, Text string
	Line       int
}

// Sections runs files that are txtar archives, section by section in their
// order, each with what start returned for the file. output says that got is
// what the section is to hold.
func Sections(t *testing.T, pattern string, start func(t *testing.T, file string) func(Section) (got string, output bool)) {
	t.Helper()
	Run(t, pattern, func(t *testing.T, file, text string) string {
		ar := txtar.Parse([]byte(text))
		section := start(t, file)
		line := 1 + bytes.Count(ar.Comment, []byte("\n"))
		for i := range ar.Files {
			f := &ar.Files[i]
			below := line + 1 + bytes.Count(f.Data, []byte("\n"))
			if got, output := section(Section{f.Name, string(f.Data), line}); output {
				f.Data = []byte(got)
			}
			line = below
		}
		return string(txtar.Format(ar))
	})
}

// diff says from where to where two texts differ, with the line before.
func diff(file, got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	from := 0
	for from < len(g) && from < len(w) && g[from] == w[from] {
		from++
	}
	gotEnd, wantEnd := len(g), len(w)
	for gotEnd > from && wantEnd > from && g[gotEnd-1] == w[wantEnd-1] {
		gotEnd--
		wantEnd--
	}
	return fmt.Sprintf("%s:%d: after %q\ngot:\n%s\nwant:\n%s", file, from+1, w[max(0, from-1)],
		strings.Join(g[from:gotEnd], "\n"), strings.Join(w[from:wantEnd], "\n"))
}
