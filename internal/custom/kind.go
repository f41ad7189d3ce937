package custom

import (
	"context"

	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/kemudi/kemudi/internal/resource"
)

// Kind is what there is to know of a kind: what [Define] makes a resource of.
type Kind struct {
	// Names say how it is called. Version is the one in which objects are stored, and StoragePrefix by default
	// "GROUP/PLURAL", as upstream's.
	resource.Names
	// Versions are all of it, the one that is stored among them.
	Versions []Version
	// Convert shows objects, each at any version, at one version, in their order. It makes new objects, and may
	// call another process. Nil: versions differ in nothing but their name.
	Convert func(ctx context.Context, objs []*Object, to string) ([]*Object, error)
	// Ending: objects are changed and deleted, but none are made any more. It is not of the ID.
	Ending bool
	// Replaces is a definition of the same resource that is served at present; nil: there is none.
	Replaces *resource.Def
	// ID tells apart what two definitions say of all versions: names, conversion, the version that is
	// stored. What has the same ID, and a Version with the same ID, is served on as it is. Empty: nothing is.
	ID string
}

// Version is one version of a kind. Functions that are nil have nothing to do. Those that are given an object to
// change own it; all others are read-only.
type Version struct {
	Name string
	// Served: clients see it.
	Served bool
	// Deprecated is the warning that clients get; empty: it is not deprecated.
	Deprecated string
	// ID tells apart what two definitions say of the version, whatever of the following it is. Objects that were
	// stored with the ID are neither defaulted nor pruned again. Empty: they are, each time that their bytes are made.
	ID string

	// Default fills what is unset, and Prune drops what the schema does not know, of what clients send, of what
	// mutating admission leaves, and of what is read. Default comes first.
	Default, Prune func(obj *Object)
	// Unknown lists what the schema does not know, in the words of `unknown field "spec.foo"`. It sees objects as they are sent.
	Unknown func(obj *Object) []string
	// Malformed refuses what clients send if metadata of embedded objects in it is none; nil: there are no such objects.
	Malformed func(obj *Object) error
	// Validate refuses. old is nil on create. sub is the subresource that is written: "", "status" or "scale".
	// Metadata has been looked at, as of all kinds.
	Validate func(ctx context.Context, obj, old *Object, sub string, errs *resource.Errors)

	// Status: it has the subresource status.
	Status bool
	// Scale: it has the subresource scale; nil: it has not.
	Scale *Scale

	// Columns are those behind NAME; none: AGE.
	Columns []resource.Column[*Object]
	// Fields are the field selectors beyond name and namespace.
	Fields map[string]func(*Object) string
	// Types reads objects for server-side apply. Nil: what is a list is one value, and maps merge.
	Types managedfields.TypeConverter
	// Model is the schema in documents of OpenAPI 2 or 3; nil: nothing is known of the fields.
	Model func(openAPI int) *spec.Schema
}
