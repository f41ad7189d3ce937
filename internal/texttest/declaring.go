package texttest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Declaring finds the file of a test's package that declares something: the first
// that has its name as a text. Documents that are generated name it.
func Declaring(t testing.TB, name string) string {
	t.Helper()
	files, err := filepath.Glob("*.go")
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
	t.Errorf("no file has %q", name)
	return ""
}
