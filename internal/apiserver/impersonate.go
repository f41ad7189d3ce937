package apiserver

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// impersonate returns whom the request's headers name, if by may act for them.
func (s *Server) impersonate(r *http.Request, by user.Info) (user.Info, error) {
	as := &user.DefaultInfo{Name: r.Header.Get("Impersonate-User"), UID: r.Header.Get("Impersonate-Uid"), Extra: map[string][]string{}}
	as.Groups = slices.Clone(r.Header["Impersonate-Group"])
	for header, values := range r.Header {
		if key, ok := strings.CutPrefix(header, "Impersonate-Extra-"); ok {
			if name, err := url.PathUnescape(strings.ToLower(key)); err == nil {
				as.Extra[name] = values
			}
		}
	}
	if as.Name == "" {
		return nil, badRequest("requested %v without impersonating a user", as.Groups)
	}
	for _, a := range impersonations(as, by) {
		if err := s.authorize(r.Context(), a); err != nil {
			return nil, err
		}
	}
	if len(as.Groups) == 0 {
		as.Groups = impliedGroups(as.Name)
	}
	if as.Name != user.Anonymous && !slices.Contains(as.Groups, user.AllAuthenticated) && !slices.Contains(as.Groups, user.AllUnauthenticated) {
		as.Groups = append(as.Groups, user.AllAuthenticated)
	}
	if as.Name == user.Anonymous && !slices.Contains(as.Groups, user.AllUnauthenticated) {
		as.Groups = append(as.Groups, user.AllUnauthenticated)
	}
	return as, nil
}

// impersonations lists what by must be allowed to.
func impersonations(as *user.DefaultInfo, by user.Info) []authorizer.Attributes {
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

// impliedGroups are the groups of a service account.
func impliedGroups(name string) []string {
	if ns, _, err := serviceaccount.SplitUsername(name); err == nil {
		return serviceaccount.MakeGroupNames(ns)
	}
	return nil
}
