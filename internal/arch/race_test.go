package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// notRaced are folders of internal/ with goroutines or locks whose tests run
// without the race detector all the same.
var notRaced = map[string]string{
	"container": "its tests start containers, in this process: containerd's own races are not ours to find",
	"patch":     "one goroutine compares it with the library; those of an API server call it in the tests of apiserver",
	"sim":       "what it runs is tested by the others' tests, which run it",
	"texttest":  "it looks a thing up once",
	"trace":     "it reads its catalogue once",
}

// TestPackagesThatReachByUnsafeHaveTheirPointersChecked, by the race detector or
// without it: in lists of the Makefile.
func TestPackagesThatReachByUnsafeHaveTheirPointersChecked(t *testing.T) {
	checked := slices.Concat(makeList(t, "RACE"), makeList(t, "POINTERS"))
	sources, err := tree()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sources {
		pkg, ok := strings.CutPrefix(s.dir(), "internal/")
		folder, _, _ := strings.Cut(pkg, "/")
		if ok && s.localName("unsafe") != "" && !slices.Contains(checked, folder) {
			t.Errorf("%s reaches by package unsafe: add internal/%s to RACE or POINTERS in the Makefile", s.path, folder)
		}
	}
}

// makeList are the folders of internal/ in a list of the Makefile.
func makeList(t *testing.T, name string) []string {
	t.Helper()
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^` + name + ` .*\./internal/,([a-z ]+)`).FindSubmatch(makefile)
	if m == nil {
		t.Fatalf("the Makefile has no list %s", name)
	}
	return strings.Fields(string(m[1]))
}

// TestPackagesWithGoroutinesAreRaced holds the list RACE of the Makefile to what
// imports packages sync or task.
func TestPackagesWithGoroutinesAreRaced(t *testing.T) {
	raced := makeList(t, "RACE")
	sources, err := tree()
	if err != nil {
		t.Fatal(err)
	}
	shares := map[string]string{} // by folder of internal/, a file that shows it
	for _, s := range sources {
		pkg, ok := strings.CutPrefix(s.dir(), "internal/")
		if !ok || s.test {
			continue
		}
		first, _, _ := strings.Cut(pkg, "/")
		for _, imp := range []string{"sync", "sync/atomic", module + "internal/task"} {
			if s.localName(imp) != "" {
				shares[first] = s.path
			}
		}
	}
	for folder, file := range shares {
		if notRaced[folder] == "" && !slices.Contains(raced, folder) {
			t.Errorf("internal/%s has state that goroutines share (%s): add it to RACE in the Makefile", folder, file)
		}
	}
	for folder := range notRaced {
		if shares[folder] == "" || slices.Contains(raced, folder) {
			t.Errorf("internal/%s needs no exception from the race detector", folder)
		}
	}
}
