package resource

import (
	"cmp"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/api/validation/path"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Names are what a resource is called, and where its objects are.
type Names struct {
	Group, Version, Kind, Plural string
	Singular                     string // default: Kind in lower case
	ListKind                     string // default: Kind and "List"
	Short, Categories            []string
	Namespaced                   bool
	// IsNamespace: the objects are what others lie in. Their names are also the
	// namespaces for which roles let people act on them.
	IsNamespace bool

	// StoragePrefix is the part of the store's key after "/registry/"; the
	// default is Plural. It is upstream's, so that snapshots can be exchanged.
	StoragePrefix string

	// NameRule refuses bad names of objects; the default is DNS1123Subdomain.
	NameRule NameRule

	// OptIn: it is served only if --runtime-config says so, whatever its versions are.
	OptIn bool
	// Deprecated is what who uses the kind at all is warned with; empty: nothing. [Version] has that of other versions.
	Deprecated string
}

// complete sets what was left to its default.
func (n *Names) complete() {
	n.ListKind = cmp.Or(n.ListKind, n.Kind+"List")
	n.Singular, n.StoragePrefix = cmp.Or(n.Singular, strings.ToLower(n.Kind)), cmp.Or(n.StoragePrefix, n.Plural)
	if n.NameRule == nil {
		n.NameRule = DNS1123Subdomain
	}
}

// GVK is the storage version's group, version and kind.
func (n *Names) GVK() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: n.Group, Version: n.Version, Kind: n.Kind}
}

// GroupResource names the resource, as in error messages and RBAC rules.
func (n *Names) GroupResource() schema.GroupResource {
	return schema.GroupResource{Group: n.Group, Resource: n.Plural}
}

// String is the resource's full name, "deployments.apps".
func (n *Names) String() string { return n.GroupResource().String() }

// Key is the store's key of an object, or of the whole namespace or resource
// where name, or both, are empty (then it ends in a slash).
func (n *Names) Key(namespace, name string) string {
	key := "/registry/" + n.StoragePrefix + "/"
	if n.Namespaced && namespace != "" {
		key += namespace + "/"
	}
	return key + name
}

// NameRule returns what is wrong with a name; nothing if it is good. prefix
// says that name is a generateName, which may end in a dash.
type NameRule func(name string, prefix bool) []string

// The rules that names of objects follow.
var (
	DNS1123Subdomain NameRule = validation.NameIsDNSSubdomain
	DNS1123Label     NameRule = validation.NameIsDNSLabel
	// PathSegment allows whatever fits into a URL path (RBAC names).
	PathSegment NameRule = path.ValidatePathSegmentName
)
