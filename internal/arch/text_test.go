package arch

import (
	"bytes"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// machineWords are traces of the machine that a file was written on: folders
// that exist nowhere else, and hosts that people reach under other names or
// through mirrors. They are in two parts so that this file holds none.
var machineWords = [][2]string{
	{"/wo", "rk/"},
	{"/tmp/", "brief"},
	{"/tmp/", "bin/"},
	{"farm", "-studio"},
	{"/.lib", "rary"},
	{"sub", "agent"},
	{"proxy.golang", ".org"},
	{"sum.golang", ".org"},
	{"registry.npmjs", ".org"},
	{"deb.debian", ".org"},
	{"pypi", ".org"},
	{"crates", ".io"},
}

func TestNoFileNamesTheMachineItWasWrittenOn(t *testing.T) {
	names, err := files()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		data, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.IndexByte(data[:min(len(data), 8000)], 0) >= 0 {
			continue // binary
		}
		for _, found := range wordsIn(data) {
			t.Errorf("%s: holds %q", name, found)
		}
	}
}

func wordsIn(data []byte) (found []string) {
	for _, w := range machineWords {
		if word := w[0] + w[1]; bytes.Contains(data, []byte(word)) {
			found = append(found, word)
		}
	}
	return found
}

var (
	// quotedPath matches a back-quoted path of ours in a document.
	quotedPath = regexp.MustCompile("`((?:internal|cmd|docs|test|build|hack|examples|web)/[A-Za-z0-9_./-]+)`")
	// link matches the target of a relative link in a document.
	link = regexp.MustCompile(`\]\(([A-Za-z0-9_./-]+)(?:#[^)]*)?\)`)
)

func TestDocumentsNameWhatExists(t *testing.T) {
	names, err := files()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if !strings.HasSuffix(name, ".md") || strings.Contains("/"+name, "/testdata/") {
			continue
		}
		if name == "docs/requirements/COVERAGE.md" { // generated; it names tests, not files
			continue
		}
		data, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range pathsIn(name, string(data)) {
			if _, err := os.Stat(filepath.Join(root, p)); err != nil {
				t.Errorf("%s: names %s, which does not exist", name, p)
			}
		}
	}
}

// pathsIn lists the paths that the document name mentions, relative to the root.
func pathsIn(name, text string) (out []string) {
	for _, m := range quotedPath.FindAllStringSubmatch(text, -1) {
		out = append(out, m[1])
	}
	for _, m := range link.FindAllStringSubmatch(text, -1) {
		out = append(out, path.Join(path.Dir(name), m[1]))
	}
	return out
}

// saidTwice lists what a document says on more than one line: long lines, and long first
// cells of tables. Putting two changes together leaves such lines.
func saidTwice(text string) (out []string) {
	seen := map[string]int{}
	for line := range strings.Lines(text) {
		if cell, ok := strings.CutPrefix(line, "| "); ok {
			line, _, _ = strings.Cut(cell, " |")
		}
		if line = strings.TrimSpace(line); len(line) < 25 {
			continue
		}
		if seen[line]++; seen[line] == 2 {
			out = append(out, line)
		}
	}
	return out
}

func TestDocumentsSayNothingTwice(t *testing.T) {
	names, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if filepath.Base(name) == "MAP.md" { // generated; its sections begin alike
			continue
		}
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range saidTwice(string(data)) {
			t.Errorf("%s: says twice: %s", filepath.Base(name), line)
		}
	}
}

// drawnLayers matches the picture of the layers in docs/architecture.md, which begins with
// the commands: what it calls the units stands before the words on them.
var drawnLayers = regexp.MustCompile("(?s)```\ncmd/kemudi\n(.*?)```")

// wrongInLayers lists what a picture of the layers, drawn from the top down, says other than ranks.
func wrongInLayers(picture string, ranks map[string]int) (out []string) {
	drawn := map[string]bool{}
	layer := len(ranks)
	for line := range strings.Lines(picture) {
		units, _, _ := strings.Cut(line, "   ")
		for unit := range strings.FieldsSeq(units) {
			switch rank, ok := ranks[unit]; {
			case !ok:
				out = append(out, unit+" is no unit")
			case drawn[unit]:
				out = append(out, unit+" is drawn twice")
			case rank > layer:
				out = append(out, unit+" is drawn too low")
			default:
				layer = rank
			}
			drawn[unit] = true
		}
	}
	for _, unit := range slices.Sorted(maps.Keys(ranks)) {
		if !drawn[unit] && !strings.Contains(strings.TrimSuffix(unit, "/*"), "/") && !slices.Contains(testOnly, unit) {
			out = append(out, unit+" is not drawn")
		}
	}
	return out
}

func TestArchitectureDrawsTheLayersAsTheyAre(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(root, "docs/architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := drawnLayers.FindSubmatch(data)
	if found == nil {
		t.Fatal("docs/architecture.md has no picture of the layers")
	}
	for _, wrong := range wrongInLayers(string(found[1]), ranks()) {
		t.Errorf("docs/architecture.md: %s", wrong)
	}
}
