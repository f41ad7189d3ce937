package plugins

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kemudi/kemudi/internal/texttest"
)

func TestMapListsEveryPlugin(t *testing.T) {
	s := New()
	var b strings.Builder
	b.WriteString("| plugin | filters | weight of its score | a refused pod is tried again after | file |\n|---|---|---|---|---|\n")
	for i, p := range s.All {
		filters, weight := "", ""
		if s.Filters[i] != nil {
			filters = "yes"
		}
		if s.Scorers[i] != nil {
			weight = fmt.Sprint(s.Weights[i])
		}
		var events []string
		for kind := NodeAdded; kind <= Leftover; kind <<= 1 {
			if s.wakers[i]&kind != 0 {
				events = append(events, kind.String())
			}
		}
		file := texttest.Declaring(t, "*.go", p.Name())
		fmt.Fprintf(&b, "| %s | %s | %s | %s | [%s](../internal/scheduler/plugins/%s) |\n", p.Name(), filters, weight, strings.Join(events, ", "), file, file)
	}
	texttest.Part(t, "../../../docs/MAP.md", "scheduler plugins", b.String())
}
