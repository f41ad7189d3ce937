package answer

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestWarningsFitIntoHeaders(t *testing.T) {
	few := []string{strings.Repeat("a", 4000), "b"}
	if got := bounded(few); !slices.Equal(got, few) {
		t.Errorf("got %d warnings, want both as they are", len(got))
	}
	var many []string
	for i := range 40 {
		many = append(many, fmt.Sprintf("%02d", i)+strings.Repeat("ü", 298))
	}
	got := bounded(many)
	if len(got) != 16 {
		t.Errorf("got %d warnings, want the 16 that there is room for", len(got))
	}
	for i, text := range got {
		if want := fmt.Sprintf("%02d", i) + strings.Repeat("ü", 254); text != want {
			t.Errorf("got %s, want %s", text, want)
		}
	}
}
