package request

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
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
	return nil, fmt.Errorf("requested [%s] without impersonating a user", strings.Join(parts(as), ", "))
}

// parts are what somebody is beside a name, for people to read.
func parts(u *user.DefaultInfo) (list []string) {
	for _, group := range u.Groups {
		list = append(list, "Group "+group)
	}
	for _, key := range slices.Sorted(maps.Keys(u.Extra)) {
		list = append(list, "UserExtra "+key+"="+strings.Join(u.Extra[key], ","))
	}
	if u.UID != "" {
		list = append(list, "UID "+u.UID)
	}
	return list
}

// StripImpersonation takes the headers away: nobody behind must heed them again.
func StripImpersonation(h http.Header) {
	for header := range h {
		if strings.HasPrefix(header, "Impersonate-") {
			h.Del(header)
		}
	}
}

// Impersonations lists what by must be allowed to, so as to act for as.
func Impersonations(as *user.DefaultInfo, by user.Info) []authorizer.Attributes {
	base := authorizer.AttributesRecord{User: by, Verb: "impersonate", APIVersion: "v1", ResourceRequest: true}
	var list []authorizer.Attributes
	add := func(change func(a *authorizer.AttributesRecord)) {
		a := base
		change(&a)
		list = append(list, &a)
	}
	add(func(a *authorizer.AttributesRecord) {
		a.Resource, a.Name = "users", as.Name
		if ns, name, err := serviceaccount.SplitUsername(as.Name); err == nil {
			a.Resource, a.Namespace, a.Name = "serviceaccounts", ns, name
		}
	})
	for _, group := range as.Groups {
		add(func(a *authorizer.AttributesRecord) { a.Resource, a.Name = "groups", group })
	}
	if as.UID != "" {
		add(func(a *authorizer.AttributesRecord) {
			a.APIGroup, a.Resource, a.Name = "authentication.k8s.io", "uids", as.UID
		})
	}
	for key, values := range as.Extra {
		for _, value := range values {
			add(func(a *authorizer.AttributesRecord) {
				a.APIGroup, a.Resource, a.Subresource, a.Name = "authentication.k8s.io", "userextras", key, value
			})
		}
	}
	return list
}

// JoinImplied adds the groups that everybody of such a name is in: those of a
// service account if no others were named, and that of all users.
func JoinImplied(as *user.DefaultInfo) {
	if ns, _, err := serviceaccount.SplitUsername(as.Name); err == nil && len(as.Groups) == 0 {
		as.Groups = serviceaccount.MakeGroupNames(ns)
	}
	known, unknown := slices.Contains(as.Groups, user.AllAuthenticated), slices.Contains(as.Groups, user.AllUnauthenticated)
	switch {
	case as.Name == user.Anonymous && !unknown:
		as.Groups = append(as.Groups, user.AllUnauthenticated)
	case as.Name != user.Anonymous && !known && !unknown:
		as.Groups = append(as.Groups, user.AllAuthenticated)
	}
}
