package route

import (
	"cmp"
	"net/textproto"
	"regexp"
	"slices"
)

// When is what a request must be beside its path. All of it must hold.
type When struct {
	Method  string  `json:"method,omitempty"` // empty: any
	Headers []Match `json:"headers,omitempty"`
	Query   []Match `json:"query,omitempty"`
}

// Match is a value that something must have.
type Match struct {
	Name    string `json:"name"`
	Value   string `json:"value"`
	Pattern bool   `json:"pattern,omitempty"` // an expression for all of it

	re *regexp.Regexp
}

// compiled is a copy with its expressions made; nil stays nil.
func (w *When) compiled() *When {
	if w == nil {
		return nil
	}
	out := &When{Method: w.Method, Headers: slices.Clone(w.Headers), Query: slices.Clone(w.Query)}
	for i := range out.Headers {
		out.Headers[i].Name = textproto.CanonicalMIMEHeaderKey(out.Headers[i].Name)
		out.Headers[i].compile()
	}
	for i := range out.Query {
		out.Query[i].compile()
	}
	return out
}

func (m *Match) compile() {
	if m.Pattern {
		m.re, _ = CompileWhole(m.Value) // what is no expression matches nothing: who made the rule has said so
	}
}

func (m *Match) fits(value string) bool {
	if m.Pattern {
		return m.re != nil && m.re.MatchString(value)
	}
	return m.Value == value
}

// Met says that a request meets all of it: by its method, headers, which are by their canonical names, and
// parameters, of which the first of each name counts.
func (w *When) Met(method string, headers, query map[string][]string) bool {
	if w.Method != "" && w.Method != method {
		return false
	}
	for i := range w.Headers {
		m := &w.Headers[i]
		if !slices.ContainsFunc(headers[m.Name], m.fits) {
			return false
		}
	}
	for i := range w.Query {
		m := &w.Query[i]
		if list := query[m.Name]; len(list) == 0 || !m.fits(list[0]) {
			return false
		}
	}
	return true
}

// narrower orders targets of one path by what they ask for (R6).
func narrower(a, b *Target) int {
	x, y := a.When, b.When
	if x == nil {
		x = &When{}
	}
	if y == nil {
		y = &When{}
	}
	asks := func(w *When) int {
		if w.Method != "" {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(asks(y), asks(x)), cmp.Compare(len(y.Headers), len(x.Headers)), cmp.Compare(len(y.Query), len(x.Query)))
}
