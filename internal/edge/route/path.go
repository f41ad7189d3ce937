package route

import "strings"

// Clean is a decoded path as rules are looked for: slashes that follow each other are one.
// ok is false for what somebody behind the edge could read as another path: segments that
// are dots, whichever slash is between them and whatever parameters follow, backslashes, and
// what cannot be printed. Such a path is refused rather than mended.
func Clean(path string) (_ string, ok bool) {
	if path == "" || path[0] != '/' {
		return "", false
	}
	double := false
	for i := range len(path) {
		switch c := path[i]; {
		case c < ' ' || c == 0x7f || c == '\\':
			return "", false
		case c == '.' && path[i-1] == '/' && dots(path[i:]):
			return "", false
		case c == '/' && i > 0 && path[i-1] == '/':
			double = true
		}
	}
	if !double {
		return path, true
	}
	var b strings.Builder
	for i := range len(path) {
		if path[i] != '/' || i == 0 || path[i-1] != '/' {
			b.WriteByte(path[i])
		}
	}
	return b.String(), true
}

// dots says that a segment is one or two dots, or these with parameters.
func dots(s string) bool {
	s = strings.TrimPrefix(s[1:], ".")
	return s == "" || s[0] == '/' || s[0] == ';'
}
