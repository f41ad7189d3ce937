package route

import (
	"fmt"
	"regexp"
)

// variable is one of those that a text may have.
var variable = regexp.MustCompile(`\$(\{[a-z_]+\}|[a-z_]+)`)

// Variables are what a text may name with $ or ${} around it.
var Variables = []string{"host", "http_host", "scheme", "request_uri", "escaped_request_uri", "request_method", "remote_addr"}

// Expand puts what a request has in the place of variables. One that is not known is an error.
func Expand(text string, value func(name string) (string, bool)) (string, error) {
	var err error
	out := variable.ReplaceAllStringFunc(text, func(found string) string {
		name := found[1:]
		if name[0] == '{' {
			name = name[1 : len(name)-1]
		}
		v, ok := value(name)
		if !ok && err == nil {
			err = fmt.Errorf("there is no variable $%s", name)
		}
		return v
	})
	return out, err
}
