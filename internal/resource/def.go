package resource

import (
	"cmp"
	"fmt"
	"reflect"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Resource is a defined resource that still knows its Go type.
type Resource[T Object] struct {
	*Def
}

// Def is a defined resource, the same for every kind: its declaration, complete,
// with functions that may be called with objects of the resource's own type only
// (they panic otherwise: that is a bug of ours). Nil are, where the declaration
// has none, Requester, Commit, Taking, Offer, GracePeriod, PendingDelete, Terminate, PodSpec, Minor and the
// functions of subresources. A Def is read-only after Define.
type Def struct {
	Spec[Object]
	New func() Object
	// Dynamic is set if the kind is known at run time only (package custom); nil: it has a Go type.
	Dynamic *Dynamic
	// Replaces is the first definition of the resource if this is a later one: see [Def.Base].
	Replaces *Def
}

// SubDef is a subresource, and VersionDef a further version, of a Def.
type (
	SubDef     = Sub[Object]
	VersionDef = Version[Object]
)

// Stored reports whether the resource's objects are kept, and neither questions that
// a handler answers nor computed.
func (d *Def) Stored() bool { return d.Handler == Generic && !d.Computed }

// Define checks a declaration and returns the resource. It panics on a
// declaration that cannot work: that is found by the first test that runs.
func Define[T Object](s Spec[T]) *Resource[T] {
	elem := reflect.TypeFor[T]().Elem()
	if s.Version == "" || s.Kind == "" || s.Plural == "" {
		panic(fmt.Sprintf("resource %v: version, kind and plural must be set", elem))
	}
	s.complete()
	d := &Def{Spec: s.erase(), New: func() Object { return reflect.New(elem).Interface().(Object) }}
	d.Index[IndexController], d.Index[IndexOwner] = controllerUID, ownerUIDs
	return &Resource[T]{Def: d}
}

// complete sets what the declaration leaves to its defaults. It changes nothing
// that other declarations may share.
func (s *Spec[T]) complete() {
	s.Names.complete()
	switch {
	case s.Handler != Generic:
		s.Verbs = Create
	case s.Computed:
		s.Verbs = ReadVerbs
	}
	s.Verbs = cmp.Or(s.Verbs, AllVerbs)
	s.DefaultPropagation = cmp.Or(s.DefaultPropagation, metav1.DeletePropagationBackground)
	if s.Default == nil {
		s.Default = func(T) {}
	}
	if s.Prepare == nil {
		s.Prepare = func(_, _ T) {}
	}
	if s.Validate == nil {
		s.Validate = func(_, _ T, _ *Errors) {}
	}
	if s.Warn == nil {
		s.Warn = func(_, _ T) []string { return nil }
	}
	if s.TTL == nil {
		s.TTL = func(T) time.Duration { return 0 }
	}
	s.Columns = allColumns(s.Columns, s.Ageless)
	s.Sub = each(s.Sub, Sub[T].complete)
	s.Versions = each(s.Versions, func(v Version[T]) Version[T] { return v.complete(s) })
}

func (s Sub[T]) complete() Sub[T] {
	s.Verbs = cmp.Or(s.Verbs, PartVerbs)
	if len(s.Columns) > 0 {
		s.Columns = allColumns(s.Columns, false)
	}
	return s
}

// complete takes from s, which is complete, what the version has no other of.
func (v Version[T]) complete(s *Spec[T]) Version[T] {
	if v.Default == nil {
		v.Default = func(Object) {}
	}
	if v.Prepare == nil {
		v.Prepare = s.Prepare
	}
	if v.Validate == nil {
		v.Validate = s.Validate
	}
	v.DefaultPropagation = cmp.Or(v.DefaultPropagation, s.DefaultPropagation)
	v.Sub = each(v.Sub, Sub[T].complete)
	if v.Live != nil {
		live := *v.Live
		live.Columns = allColumns(live.Columns, len(live.Columns) > 0)
		v.Live = &live
	}
	for _, sub := range s.Sub {
		if v.Subresource(sub.Name) == nil {
			v.Sub = append(v.Sub, sub)
		}
	}
	return v
}

// Subresource returns the subresource with the name, or nil.
func (s *Spec[T]) Subresource(name string) *Sub[T] { return named(s.Sub, name) }

// Subresource returns the version's subresource with the name, or nil.
func (v *Version[T]) Subresource(name string) *Sub[T] { return named(v.Sub, name) }

func named[T Object](subs []Sub[T], name string) *Sub[T] {
	for i := range subs {
		if subs[i].Name == name {
			return &subs[i]
		}
	}
	return nil
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
