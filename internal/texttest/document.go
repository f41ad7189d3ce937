package texttest

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// Part fails the test if the part of a document that is called name is not got, or lets it
// be. The part stands between two comments, the first of which says how it is written again;
// the rest of the document is people's. Parts of one document are written one at a time.
func Part(t *testing.T, file, name, got string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- "+name+": generated, run: ", "<!-- end of "+name+" -->\n"
	before, rest, ok := strings.Cut(string(text), begin)
	how, rest, ok2 := strings.Cut(rest, " -->\n")
	want, after, ok3 := strings.Cut(rest, end)
	if !ok || !ok2 || !ok3 {
		t.Fatalf("%s has no part that begins with %q and ends with %q", file, begin, end)
	}
	switch {
	case got == want:
	case *Update:
		text := before + begin + how + " -->\n" + got + end + after
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Error(diff(file, got, want) + fmt.Sprintf("\n%s of %s: not as things are; run: %s", name, file, how))
	}
}
