package device

import (
	"strconv"
	"strings"
	"testing"

	"github.com/kemudi/kemudi/internal/texttest"
)

func TestDevicesAreChosen(t *testing.T) {
	t.Parallel()
	texttest.Run(t, "testdata/choose.txt", func(t *testing.T, file, text string) string {
		var w wish
		lines := strings.Split(text, "\n")
		for i, line := range lines {
			switch {
			case strings.HasPrefix(line, "want="):
				w = parseWish(t, line)
			case strings.HasPrefix(line, "-> "):
				ids, err := choose(w)
				lines[i] = "-> " + strings.Join(ids, ",")
				if err != nil {
					lines[i] = "-> " + err.Error()
				}
			}
		}
		return strings.Join(lines, "\n")
	})
}

func parseWish(t *testing.T, line string) wish {
	t.Helper()
	w := wish{resource: "example.com/device"}
	for _, field := range strings.Fields(line) {
		key, value, _ := strings.Cut(field, "=")
		ids := strings.FieldsFunc(value, func(r rune) bool { return r == ',' })
		switch key {
		case "want":
			n, err := strconv.Atoi(value)
			if err != nil {
				t.Fatal(err)
			}
			w.want = n
		case "healthy":
			w.healthy = ids
		case "used":
			w.used = ids
		case "reusable":
			w.reusable = ids
		case "prefer":
			w.prefer = ids
		case "nearby":
			w.nearby = ids
		default:
			t.Fatalf("unknown field %q", field)
		}
	}
	return w
}
