package texttest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Declaring finds the file that declares something: the first of those that glob
// matches, tests aside, that has its name as a text. Documents that are generated name
// it.
func Declaring(t testing.TB, glob, name string) string {
	t.Helper()
	files, err := filepath.Glob(glob)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(file, "_test.go") && strings.Contains(string(text), `"`+name+`"`) {
			return file
		}
	}
	t.Errorf("no file of %s has %q", glob, name)
	return ""
}
