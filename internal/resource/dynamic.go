package resource

import (
	"context"

	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// Dynamic is what a resource has whose kind is known at run time only. All its versions, the one
// that is stored included, are in Versions, and differ from those of other kinds: an object that
// is written stays at the version of the request until it is stored, and a cached object is at
// whichever version it was stored. To and From are not called.
type Dynamic struct {
	// Convert returns the objects, each of which may be of any version, at one version. What it
	// returns is new; what it is given is not changed. It may call another process.
	Convert func(ctx context.Context, objs []Object, to string) ([]Object, error)
	// VersionOf is the version that an object is at.
	VersionOf func(obj Object) string
	// SameDesired reports that two objects of one version agree in all that generations count.
	SameDesired func(a, b Object) bool
	// Remote: Convert calls another process.
	Remote bool
	// ID tells apart what all versions share: as long as it is the same, so is all of that. Empty: nothing is known of it.
	ID string
}

// Live is what a version of a Dynamic kind has of its own.
type Live struct {
	// Unserved: objects may be stored or sent to webhooks at the version, but clients do not see it.
	Unserved bool
	// ID tells apart what two definitions say of the version, as [Dynamic.ID] does of the kind.
	ID string
	// Normalize has an object of the version, which is the caller's own, be what is served of it:
	// defaults come, what the schema does not know goes.
	Normalize func(obj Object)
	// Fill is Normalize for what has come of an apply: null that the schema does not want is left to
	// validation, as its owner has to know.
	Fill func(obj Object)
	// Normal makes of an object of the version what is served of it: what the schema does not
	// know goes, defaults come. It returns obj itself if nothing is to be done: the object may be
	// cached, and is not changed.
	Normal func(obj Object) Object
	// Pruned makes it of an object that was normal at another version and has been converted: what the
	// schema does not know goes, and no defaults come. obj is not changed. Nil: as Convert returns it.
	Pruned func(obj Object) Object
	// Unknown lists what an object has that the schema does not know, as clients are told: `unknown field "spec.foo"`.
	Unknown func(obj Object) []string
	// Malformed refuses an object that a client has sent for what decoding refuses of kinds with a Go
	// type: metadata of embedded objects that is none. nil: there is nothing of the kind.
	Malformed func(obj Object) error
	// Validate refuses, in place of the version's Validate. sub is the subresource that is written.
	Validate func(ctx context.Context, obj, old Object, sub string, errs *Errors)
	// Columns and Fields are the version's own, of objects at the version.
	Columns []Column[Object]
	Fields  map[string]func(Object) string
	// Types reads objects of the version for server-side apply.
	Types managedfields.TypeConverter
	// Model is the schema of the version in documents of OpenAPI 2 or 3, whose references are to the
	// names of models there; nil: nothing is known of its fields.
	Model func(openAPI int) *spec.Schema
}

// Document is an object of a Dynamic kind, as code sees it that knows no such type.
type Document interface {
	Object
	// AppendStored appends the form that the store has.
	AppendStored(dst []byte) ([]byte, error)
	// UnmarshalJSON reads that form.
	UnmarshalJSON(data []byte) error
	// DecodeStrict reads what a client sent, and returns what strict reading has against it, unless lenient.
	DecodeStrict(data []byte, lenient bool) (strict []error, err error)
	// Pack makes the bytes of the object once. Its owner calls it.
	Pack() error
	// Packed is the object as caches have it, and Working as those who look into it more than once.
	Packed() Object
	Working() Object
}

// Tree is the same as an unstructured tree.
type Tree interface {
	// View is the object as a tree that is read-only below its first level.
	View() map[string]any
	// Bare is View without managed fields.
	Bare() map[string]any
	// SetTree makes the object what a tree is, which it takes over.
	SetTree(whole map[string]any) error
}

// Base is the definition that d replaces, or d itself: caches and all who look at metadata alone
// know the resource by it as long as it is served.
func (d *Def) Base() *Def {
	if d.Replaces != nil {
		return d.Replaces
	}
	return d
}

// Shown are objects of a Dynamic kind, each of any version, at one version: with the defaults of the
// version that it is of, converted, and then without what the other does not know. What is so
// already is returned as it is; nothing that is given is changed.
func (d *Def) Shown(ctx context.Context, objs []Object, at *VersionDef) ([]Object, error) {
	from := make([]Object, len(objs))
	for i, obj := range objs {
		from[i] = obj
		if is := d.VersionNamed(d.Dynamic.VersionOf(obj)); is != nil && is.Live != nil && is.Live.Normal != nil {
			from[i] = is.Live.Normal(obj)
		}
	}
	out, err := d.Dynamic.Convert(ctx, from, at.Version)
	if err != nil {
		return nil, err
	}
	for i := range out {
		if d.Dynamic.VersionOf(from[i]) != at.Version && at.Live != nil && at.Live.Pruned != nil {
			out[i] = at.Live.Pruned(out[i])
		}
	}
	return out, nil
}

// VersionNamed is a further version by its name, nil if there is none.
func (d *Def) VersionNamed(name string) *VersionDef {
	for i := range d.Versions {
		if d.Versions[i].Version == name {
			return &d.Versions[i]
		}
	}
	return nil
}
