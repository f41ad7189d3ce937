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
		if key, ok := strings.CutPrefix(header, impersonateExtra); ok {
			if name, err := url.PathUnescape(strings.ToLower(key)); err == nil {
				if as.Extra == nil {
					as.Extra = map[string][]string{}
				}
				as.Extra[name] = values
			}
		}
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
