package resource

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Resource is a defined resource that still knows its Go type.
type Resource[T Object] struct {
	*Def
}

// Def is a defined resource, the same for every kind. All functions are set
// and may be called with objects of the resource's own type only (they panic
// otherwise: that is a bug of ours). A Def is read-only after Define.
type Def struct {
	Group, Version, Kind, Plural, Singular string
	Short, Categories                      []string
	Namespaced                             bool
	StoragePrefix                          string
	NameRule                               NameRule

	New      func() Object
	Default  func(obj Object)
	Prepare  func(obj, old Object)
	Validate func(obj, old Object, errs *Errors)
	Warn     func(obj, old Object) []string
	Commit   func(tx Tx, obj, old Object) error // nil: no claims

	Requester func(obj Object, by user.Info) // nil: nobody is written down

	HasGeneration, NoFieldTracking, NoUpdate, NoDeleteCollection, CreateOnly, AllowCreateOnUpdate, NoUnconditionalUpdate bool

	Handler            string
	TTL                func(obj Object) time.Duration
	GracePeriod        func(obj Object, asked *int64) int64 // nil: delete at once
	DefaultPropagation metav1.DeletionPropagation
	PendingDelete      func(obj Object) bool // nil: never

	Columns []ColumnDef // all of them, in order, Name and Age too
	Fields  map[string]func(Object) string
	Index   map[string]func(Object) []string

	Sub       []SubDef
	OldFields []OldField
	Versions  []VersionDef
}

// SubDef is a defined subresource. Functions that the Spec left out are nil.
type SubDef struct {
	Name     string
	Verbs    []string
	Body     *Body
	Merge    func(obj, old Object)
	Validate func(obj, old Object, errs *Errors)
	Get      func(obj Object) runtime.Object
	Set      func(obj Object, body runtime.Object) error
	Handler  string
}

// VersionDef is a defined further version.
type VersionDef struct {
	Group, Version string
	New            func() Object
	Default        func(obj Object)
	To             func(obj Object) (Object, error)
	From           func(obj Object) (Object, error)
	Deprecated     string
	// Prepare and Validate are the resource's own unless the version has other rules.
	Prepare  func(obj, old Object)
	Validate func(obj, old Object, errs *Errors)
	// DefaultPropagation is the resource's own unless the version has another.
	DefaultPropagation metav1.DeletionPropagation
	// Sub are the subresources that this version serves.
	Sub []SubDef
}

// Subresource returns the version's subresource with the name, or nil.
func (v *VersionDef) Subresource(name string) *SubDef {
	for i := range v.Sub {
		if v.Sub[i].Name == name {
			return &v.Sub[i]
		}
	}
	return nil
}

// ColumnDef is a defined column.
type ColumnDef struct {
	metav1.TableColumnDefinition
	Value func(obj Object) any
}

// GVK is the storage version's group, version and kind.
func (d *Def) GVK() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: d.Group, Version: d.Version, Kind: d.Kind}
}

// GroupResource names the resource, as in error messages and RBAC rules.
func (d *Def) GroupResource() schema.GroupResource {
	return schema.GroupResource{Group: d.Group, Resource: d.Plural}
}

// String is the resource's full name, "deployments.apps".
func (d *Def) String() string { return d.GroupResource().String() }

// Key is the store's key of an object, or of the whole namespace or resource
// where name, or both, are empty (then it ends in a slash).
func (d *Def) Key(namespace, name string) string {
	key := "/registry/" + d.StoragePrefix + "/"
	if d.Namespaced && namespace != "" {
		key += namespace + "/"
	}
	return key + name
}

// Subresource returns the subresource with the name, or nil.
func (d *Def) Subresource(name string) *SubDef {
	for i := range d.Sub {
		if d.Sub[i].Name == name {
			return &d.Sub[i]
		}
	}
	return nil
}

// Define checks a declaration and returns the resource. It panics on a
// declaration that cannot work: that is found by the first test that runs.
func Define[T Object](s Spec[T]) *Resource[T] {
	elem := reflect.TypeFor[T]().Elem()
	if s.Version == "" || s.Kind == "" || s.Plural == "" {
		panic(fmt.Sprintf("resource %v: version, kind and plural must be set", elem))
	}
	d := &Def{
		Group: s.Group, Version: s.Version, Kind: s.Kind, Plural: s.Plural,
		Singular: or(s.Singular, strings.ToLower(s.Kind)), Short: s.Short, Categories: s.Categories,
		Namespaced: s.Namespaced, StoragePrefix: or(s.StoragePrefix, s.Plural), NameRule: s.NameRule,
		New:           func() Object { return reflect.New(elem).Interface().(Object) },
		OldFields:     s.OldFields,
		HasGeneration: s.HasGeneration, NoFieldTracking: s.NoFieldTracking, NoUpdate: s.NoUpdate,
		NoDeleteCollection: s.NoDeleteCollection,
		CreateOnly:         s.CreateOnly, AllowCreateOnUpdate: s.AllowCreateOnUpdate, NoUnconditionalUpdate: s.NoUnconditionalUpdate,
		Handler: s.Handler, DefaultPropagation: s.DefaultPropagation,
		Fields: map[string]func(Object) string{}, Index: map[string]func(Object) []string{},
	}
	if d.NameRule == nil {
		d.NameRule = DNS1123Subdomain
	}
	if d.DefaultPropagation == "" {
		d.DefaultPropagation = metav1.DeletePropagationBackground
	}
	s.eraseLife(d)
	s.eraseReads(d)
	for _, sub := range s.Sub {
		d.Sub = append(d.Sub, sub.erase())
	}
	for _, v := range s.Versions {
		d.Versions = append(d.Versions, v.erase(d))
	}
	return &Resource[T]{Def: d}
}

// eraseLife sets the functions of a write, with defaults that do nothing.
func (s Spec[T]) eraseLife(d *Def) {
	d.Default, d.Prepare, d.Validate = func(Object) {}, func(_, _ Object) {}, func(_, _ Object, _ *Errors) {}
	d.Warn = func(_, _ Object) []string { return nil }
	d.TTL = func(Object) time.Duration { return 0 }
	if s.Default != nil {
		d.Default = func(obj Object) { s.Default(obj.(T)) }
	}
	if s.Requester != nil {
		d.Requester = func(obj Object, by user.Info) { s.Requester(obj.(T), by) }
	}
	if s.Prepare != nil {
		d.Prepare = func(obj, old Object) { s.Prepare(obj.(T), typed[T](old)) }
	}
	if s.Validate != nil {
		d.Validate = func(obj, old Object, errs *Errors) { s.Validate(obj.(T), typed[T](old), errs) }
	}
	if s.Warn != nil {
		d.Warn = func(obj, old Object) []string { return s.Warn(obj.(T), typed[T](old)) }
	}
	if s.Commit != nil {
		d.Commit = func(tx Tx, obj, old Object) error { return s.Commit(tx, typed[T](obj), typed[T](old)) }
	}
	if s.TTL != nil {
		d.TTL = func(obj Object) time.Duration { return s.TTL(obj.(T)) }
	}
	if s.GracePeriod != nil {
		d.GracePeriod = func(obj Object, asked *int64) int64 { return s.GracePeriod(obj.(T), asked) }
	}
	if s.PendingDelete != nil {
		d.PendingDelete = func(obj Object) bool { return s.PendingDelete(obj.(T)) }
	}
}

// eraseReads sets columns, field selectors and indexes.
func (s Spec[T]) eraseReads(d *Def) {
	for _, c := range s.allColumns() {
		d.Columns = append(d.Columns, ColumnDef{
			TableColumnDefinition: metav1.TableColumnDefinition{
				Name: c.Name, Type: or(c.Type, "string"), Format: c.Format, Description: c.Description, Priority: c.Priority,
			},
			Value: func(obj Object) any { return c.Value(obj.(T)) },
		})
	}
	for name, f := range s.Fields {
		d.Fields[name] = func(obj Object) string { return f(obj.(T)) }
	}
	for name, f := range s.Index {
		d.Index[name] = func(obj Object) []string { return f(obj.(T)) }
	}
	d.Index[IndexController], d.Index[IndexOwner] = controllerUID, ownerUIDs
}

func (s Sub[T]) erase() SubDef {
	d := SubDef{Name: s.Name, Verbs: s.Verbs, Body: s.Body, Handler: s.Handler}
	if len(d.Verbs) == 0 {
		d.Verbs = []string{"get", "patch", "update"}
	}
	if s.Merge != nil {
		d.Merge = func(obj, old Object) { s.Merge(obj.(T), old.(T)) }
	}
	if s.Validate != nil {
		d.Validate = func(obj, old Object, errs *Errors) { s.Validate(obj.(T), typed[T](old), errs) }
	}
	if s.Get != nil {
		d.Get = func(obj Object) runtime.Object { return s.Get(obj.(T)) }
	}
	if s.Set != nil {
		d.Set = func(obj Object, body runtime.Object) error { return s.Set(obj.(T), body) }
	}
	return d
}

// erase needs the Def with its functions and subresources already set.
func (v Version[T]) erase(d *Def) VersionDef {
	def := VersionDef{
		Group: v.Group, Version: v.Version, New: v.New, Default: v.Default, Prepare: d.Prepare, Validate: d.Validate, Deprecated: v.Deprecated,
		DefaultPropagation: metav1.DeletionPropagation(or(string(v.DefaultPropagation), string(d.DefaultPropagation))),
	}
	if def.Default == nil {
		def.Default = func(Object) {}
	}
	if v.Prepare != nil {
		def.Prepare = func(obj, old Object) { v.Prepare(obj.(T), typed[T](old)) }
	}
	if v.Validate != nil {
		def.Validate = func(obj, old Object, errs *Errors) { v.Validate(obj.(T), typed[T](old), errs) }
	}
	def.To = func(obj Object) (Object, error) { return v.To(obj) }
	def.From = func(obj Object) (Object, error) { return v.From(obj.(T)) }
	for _, sub := range v.OwnSub {
		def.Sub = append(def.Sub, sub.erase())
	}
	for _, sub := range d.Sub {
		if def.Subresource(sub.Name) == nil && (v.Sub == nil || slices.Contains(v.Sub, sub.Name)) {
			def.Sub = append(def.Sub, sub)
		}
	}
	return def
}

// Names of the indexes that every resource has.
const (
	IndexController = "controller" // UID of the controlling owner, or Uncontrolled
	IndexOwner      = "owner"      // UIDs of all owners
)

func controllerUID(obj Object) []string {
	if c := metav1.GetControllerOfNoCopy(obj); c != nil {
		return []string{string(c.UID)}
	}
	return []string{Uncontrolled(obj.GetNamespace())}
}

// Uncontrolled is the value of IndexController of a namespace's objects that no
// owner controls.
func Uncontrolled(namespace string) string { return "/" + namespace }

func ownerUIDs(obj Object) []string {
	refs := obj.GetOwnerReferences()
	if len(refs) == 0 {
		return nil
	}
	uids := make([]string, len(refs))
	for i := range refs {
		uids[i] = string(refs[i].UID)
	}
	return uids
}

// typed turns a possibly nil interface into a possibly nil T.
func typed[T Object](obj Object) T {
	t, _ := obj.(T)
	return t
}

func or(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}
