// Package accept reads Accept headers: [Parse] has what a client wants, in its order.
//
// It knows no media types: who answers knows what there is.
package accept

import (
	"slices"
	"strconv"
	"strings"
)

// Clause is one alternative of an Accept header.
type Clause struct {
	Kind   string // the media type, in lower case: "application/json", "text/*"
	Params map[string]string
	weight float64
}

// Parse reads an Accept header, the most wanted alternative first. What is not wanted at all (q=0) is
// the last one, as upstream has it.
func Parse(header string) []Clause {
	var list []Clause
	for part := range strings.SplitSeq(header, ",") {
		kind, rest, _ := strings.Cut(part, ";")
		c := Clause{Kind: strings.ToLower(strings.TrimSpace(kind)), weight: 1}
		for param := range strings.SplitSeq(rest, ";") {
			name, value, ok := strings.Cut(param, "=")
			if !ok {
				continue
			}
			name, value = strings.TrimSpace(name), strings.Trim(strings.TrimSpace(value), `"`)
			if name == "q" {
				if w, err := strconv.ParseFloat(value, 64); err == nil {
					c.weight = w
				}
				continue
			}
			if c.Params == nil {
				c.Params = map[string]string{}
			}
			c.Params[name] = value
		}
		list = append(list, c)
	}
	slices.SortStableFunc(list, func(a, b Clause) int {
		switch {
		case a.weight > b.weight:
			return -1
		case a.weight < b.weight:
			return 1
		}
		return 0
	})
	return list
}
