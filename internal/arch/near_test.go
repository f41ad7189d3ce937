package arch

import (
	"slices"
	"strings"
	"testing"

	"github.com/kemudi/kemudi/internal/texttest"
)

// nearFile lists the packages and structs that have used 80 % of their cap, so that growing
// into it is seen when it happens, in the commit that does it, and there is time to
// divide them. Files and functions are not listed: those that are too long are divided
// in a minute, when their cap says so, and most commits bring one near it.
const nearFile = "testdata/near.txt"

// near returns the rule and the place of what is within its cap but not far below.
func near(sizes []size) (out []string) {
	for _, s := range sizes {
		if s.is <= s.limit && s.is*100 >= s.limit*80 {
			out = append(out, s.rule+" "+s.where)
		}
	}
	return out
}

func TestPackagesAndStructsNearTheirCapAreListed(t *testing.T) {
	sources, err := tree()
	if err != nil {
		t.Fatal(err)
	}
	lines := slices.Concat(near(packageLines(sources)), near(structFields(sources)))
	texttest.File(t, nearFile, strings.Join(lines, "\n")+"\n")
}

func TestNearBites(t *testing.T) {
	sized := func(is int) size { return size{violation{rule: "r", where: "w"}, is, 10} }
	for is, want := range map[int]int{7: 0, 8: 1, 10: 1, 11: 0} {
		if got := near([]size{sized(is)}); len(got) != want {
			t.Errorf("%d of 10: got %q, want %d", is, got, want)
		}
	}
}
