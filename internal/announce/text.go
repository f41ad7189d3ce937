package announce

import (
	"fmt"
	"strconv"
	"strings"
)

// Text is a list as people read it and [ParseList] does: "n1, then n2, n3 (list 7)".
func Text(nodes []string, number uint32) string {
	if len(nodes) == 0 {
		return fmt.Sprintf("nobody (list %d)", number)
	}
	names := strings.Join(nodes, ", ")
	if len(nodes) > 1 {
		names = strings.Replace(names, ", ", ", then ", 1)
	}
	return fmt.Sprintf("%s (list %d)", names, number)
}

// ParseList reads a list that Text has made; ok is false if it is none.
func ParseList(text string) (nodes []string, number uint32, ok bool) {
	names, rest, ok := strings.Cut(text, " (list ")
	digits, end := strings.CutSuffix(rest, ")")
	n, err := strconv.ParseUint(digits, 10, 32)
	if !ok || !end || err != nil {
		return nil, 0, false
	}
	if names == "nobody" {
		return nil, uint32(n), true
	}
	return strings.Split(strings.Replace(names, ", then ", ", ", 1), ", "), uint32(n), true
}
