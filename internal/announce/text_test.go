package announce

import (
	"slices"
	"strings"
	"testing"
)

func TestListsAreReadAsTheyWereWritten(t *testing.T) {
	t.Parallel()
	for _, names := range []string{"", "n1", "n1 n2", "n1 then n3"} {
		nodes := strings.Fields(names)
		text := Text(nodes, 7)
		got, number, ok := ParseList(text)
		if !ok || number != 7 || !slices.Equal(got, nodes) {
			t.Errorf("%s: got %q, %d, %v, want %q", text, got, number, ok, nodes)
		}
	}
	for _, text := range []string{"", "n1", "n1 (list x)", "n1 (list 7", "n1 (list -1)"} {
		if got, _, ok := ParseList(text); ok {
			t.Errorf("%q: got %q, want none", text, got)
		}
	}
}
