package client

import "net/http"

// Method is the method of HTTP by which a verb on single objects, or one that deletes many, is asked for; empty for others.
func Method(verb string) string {
	switch verb {
	case "get":
		return http.MethodGet
	case "create":
		return http.MethodPost
	case "update":
		return http.MethodPut
	case "patch":
		return http.MethodPatch
	case "delete", "deletecollection":
		return http.MethodDelete
	}
	return ""
}
