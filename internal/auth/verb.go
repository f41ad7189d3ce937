package auth

import "net/http"

// Verb is the verb that a right to a resource must name for a method; empty for
// methods that nobody has a right to. Reading a list, watching one and deleting
// a collection have verbs of their own, which the path tells.
func Verb(method string) string {
	switch method {
	case http.MethodPost:
		return "create"
	case http.MethodGet, http.MethodHead:
		return "get"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		return "delete"
	}
	return ""
}
