package openapi

import (
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// root is a path that is no resource's: what there is at it, the type of the answer (nil: text),
// and its media types, where they are not those of objects.
type root struct {
	url, id, tag, doc string
	answer            reflect.Type
	media             media
}

// path describes it; the schema of its answer is collected in s.
func (r *root) path(s *schemas) path {
	answer := plainText()
	if r.answer != nil {
		answer = s.ref(r.answer)
	}
	return path{url: r.url, tag: r.tag, media: r.media, operations: []operation{{method: "get", id: r.id, doc: r.doc, answer: answer}}}
}

// document is the name of the OpenAPI 3 document that the path is in.
func (r *root) document() string { return strings.Trim(r.url, "/") }

// roots are the paths of group-versions, of their groups, and of the server as a
// whole.
func roots(gvs []schema.GroupVersion) []root {
	json := []string{"application/json"}
	objects := media{consumes: answerTypes, produces: answerTypes}
	out := []root{
		{
			"/.well-known/openid-configuration/", "getServiceAccountIssuerOpenIDConfiguration", "WellKnown",
			"get service account issuer OpenID configuration, also known as the 'OIDC discovery doc'", nil, media{consumes: []string{}, produces: json},
		},
		{
			"/openid/v1/jwks/", "getServiceAccountIssuerOpenIDKeyset", "openid",
			"get service account issuer OpenID JSON Web Key Set (contains public token verification keys)", nil,
			media{consumes: []string{}, produces: []string{"application/jwk-set+json"}},
		},
		{"/version/", "getCodeVersion", "version", "get the version information for this server", reflect.TypeFor[version.Info](), media{consumes: json, produces: json}},
		{"/api/", "getCoreAPIVersions", "core", "get available API versions", reflect.TypeFor[metav1.APIVersions](), objects},
		{"/apis/", "getAPIVersions", "apis", "get available API versions", reflect.TypeFor[metav1.APIGroupList](), objects},
	}
	seen := map[string]bool{"": true}
	for _, gv := range gvs {
		if !seen[gv.Group] {
			seen[gv.Group] = true
			out = append(out, root{
				"/apis/" + gv.Group + "/", "get" + camelGroup(gv.Group) + "APIGroup", groupTag(gv.Group), "get information of a group",
				reflect.TypeFor[metav1.APIGroup](), objects,
			})
		}
		out = append(out, root{
			base(gv) + "/", "get" + camel(gv) + "APIResources", groupTag(gv.Group) + "_" + gv.Version, "get available resources",
			reflect.TypeFor[metav1.APIResourceList](), objects,
		})
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
