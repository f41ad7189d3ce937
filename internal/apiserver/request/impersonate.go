package request

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"
)

const impersonateExtra = "Impersonate-Extra-"

// Impersonated is whom the headers of a request say that it acts for, nil if
// they say nothing. It has the groups that the headers name and no others.
func Impersonated(h http.Header) (*user.DefaultInfo, error) {
	as := &user.DefaultInfo{Name: h.Get("Impersonate-User"), UID: h.Get("Impersonate-Uid"), Groups: slices.Clone(h["Impersonate-Group"])}
	for header, values := range h {
		key, ok := strings.CutPrefix(header, impersonateExtra)
		if !ok || len(values) == 0 {
			continue
		}
		key = strings.ToLower(key)
		if plain, err := url.PathUnescape(key); err == nil { // else it is meant as it stands: nothing that is asked for is passed over
			key = plain
		}
		if as.Extra == nil {
			as.Extra = map[string][]string{}
		}
		as.Extra[key] = append(as.Extra[key], values...)
	}
	switch {
	case as.Name != "":
		return as, nil
	case as.UID == "" && len(as.Groups) == 0 && len(as.Extra) == 0:
		return nil, nil
	}
	return nil, fmt.Errorf("requested %#v without impersonating a user name", as)
}

// StripImpersonation takes the headers away: nobody behind must heed them again.
func StripImpersonation(h http.Header) {
	for header := range h {
		if strings.HasPrefix(header, "Impersonate-") {
			h.Del(header)
		}
	}
}
