package arch

import (
	"bytes"
	"os"
	"path"
	"path/filepath"
	"regexp"
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
