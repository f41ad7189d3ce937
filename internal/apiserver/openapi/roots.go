package openapi

import (
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// root is a path that is no resource's: what there is at it, and the type of the
// answer (nil: text).
type root struct {
	url, id, tag, doc string
	answer            reflect.Type
}

// path describes it; the schema of its answer is collected in s.
func (r *root) path(s *schemas) path {
	answer := plainText()
	if r.answer != nil {
		answer = s.ref(r.answer)
	}
	return path{url: r.url, tag: r.tag, operations: []operation{{method: "get", id: r.id, doc: r.doc, answer: answer}}}
}

// document is the name of the OpenAPI 3 document that the path is in.
func (r *root) document() string { return strings.Trim(r.url, "/") }

// roots are the paths of group-versions, of their groups, and of the server as a
// whole.
func roots(gvs []schema.GroupVersion) []root {
	out := []root{
		{"/.well-known/openid-configuration/", "getServiceAccountIssuerOpenIDConfiguration", "WellKnown", "get service account issuer OpenID configuration", nil},
		{"/openid/v1/jwks/", "getServiceAccountIssuerOpenIDKeyset", "openid", "get the keys that service account tokens are signed with", nil},
		{"/version/", "getCodeVersion", "version", "get the version of the server", reflect.TypeFor[version.Info]()},
		{"/api/", "getCoreAPIVersions", "core", "get the versions of the core group", reflect.TypeFor[metav1.APIVersions]()},
		{"/apis/", "getAPIVersions", "apis", "get the groups that are served", reflect.TypeFor[metav1.APIGroupList]()},
	}
	seen := map[string]bool{"": true}
	for _, gv := range gvs {
		if !seen[gv.Group] {
			seen[gv.Group] = true
			out = append(out, root{"/apis/" + gv.Group + "/", "get" + camelGroup(gv.Group) + "APIGroup", groupTag(gv.Group), "get information of a group", reflect.TypeFor[metav1.APIGroup]()})
		}
		out = append(out, root{base(gv) + "/", "get" + camel(gv) + "APIResources", groupTag(gv.Group) + "_" + gv.Version, "get available resources", reflect.TypeFor[metav1.APIResourceList]()})
	}
	return out
}

// Clients that are not known by their certificate show a token.
const (
	bearer    = "BearerToken"
	bearerDoc = "Bearer Token authentication"
)

// noted are the extensions of an operation: what it does, and to which kind.
func (o *operation) noted(add *spec.VendorExtensible) {
	if o.action != "" {
		add.AddExtension("x-kubernetes-action", o.action)
	}
	if !o.gvk.Empty() {
		add.AddExtension("x-kubernetes-group-version-kind", gvkExtension(o.gvk))
	}
}
