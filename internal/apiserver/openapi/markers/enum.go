package markers

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// enum is a type that has few values.
type enum []constant

var spaces = regexp.MustCompile(`\s+`)

// enumOf are the values of a type of texts; nil if any text will do.
func (r *reader) enumOf(t reflect.Type) (enum, error) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.String || t.PkgPath() == "" {
		return nil, nil
	}
	src, err := r.source(t.PkgPath())
	if err != nil || markersOf(src.types[t.Name()])["enum"] == nil {
		return nil, err
	}
	out := enum{}
	for _, c := range src.consts[t.Name()] {
		same := slices.IndexFunc(out, func(o constant) bool { return o.value == c.value })
		switch {
		case same < 0:
			out = append(out, c)
		case fuller(c.comment, out[same].comment):
			out[same] = c
		}
	}
	return out, nil
}

// fuller says which of two comments on one value is taken.
func fuller(a, b []string) bool {
	x, y := strings.Join(a, " "), strings.Join(b, " ")
	return len(x) > len(y) || len(x) == len(y) && x < y
}

// values are those that a field may have.
func (e enum) values() []any {
	var texts []string
	for _, c := range e {
		texts = append(texts, c.value)
	}
	slices.Sort(texts)
	out := make([]any, len(texts))
	for i, v := range texts {
		out[i] = v
	}
	return out
}

// comment is what is said of the values beside a field.
func (e enum) comment() []string {
	if len(e) == 0 {
		return nil
	}
	var lines []string
	for _, c := range e {
		text := strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(strings.Join(c.comment, " ")), c.name))
		lines = append(lines, fmt.Sprintf(" - `%q` %s", c.value, spaces.ReplaceAllString(text, " ")))
	}
	slices.Sort(lines)
	return append([]string{"", "Possible enum values:"}, lines...)
}
