package match

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/api/admissionregistration"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/resource"
)

// Target is one write, as those who are asked about it see it. It is for one goroutine.
type Target struct {
	a *admission.Attributes
	o *admission.Options

	requested *Version
	others    []*Version // nil: not looked for
	forms     map[*Version]*Form
	requests  map[*Version]*admissionv1.AdmissionRequest

	namespace *corev1.Namespace
}

// Version is a write's resource at one of its versions. There is one of each in a Target.
type Version struct {
	Kind     schema.GroupVersionKind // of what is written: of a subresource with a body, of that
	Resource schema.GroupVersionResource

	def *resource.VersionDef // nil: the version that is stored
}

// Form is the objects of a write at a version, with apiVersion and kind. They are shared, and
// read-only. Nil: there is none.
type Form struct {
	Object, Old runtime.Object

	// back is an object of a kind that is known at run time only as the write has it: at the version
	// of the request.
	back func(obj resource.Object) (resource.Object, error)
}

// New returns the target that a write is.
func New(o *admission.Options, a *admission.Attributes) *Target { return &Target{a: a, o: o} }

// Attributes are the write itself.
func (t *Target) Attributes() *admission.Attributes { return t.a }

// Exempt reports that neither webhooks nor policies are asked about the write: it is of
// themselves, or a question of who somebody is or what he may do.
func Exempt(a *admission.Attributes) bool {
	return a.Def.Group == admissionregistration.Group || slices.Contains(admissionregistration.Unasked, a.Def.GroupResource())
}

// Requested is the version that the request speaks.
func (t *Target) Requested() *Version {
	if t.requested == nil {
		d, gv := t.a.Def, t.a.GVK.GroupVersion()
		if t.a.GVK.Empty() {
			gv = d.GVK().GroupVersion()
		}
		t.requested = t.version(gv, versionOf(d, gv))
	}
	return t.requested
}

// versionOf finds a further version of a resource; nil: it is the one that is stored.
func versionOf(d *resource.Def, gv schema.GroupVersion) *resource.VersionDef {
	for i := range d.Versions {
		if v := &d.Versions[i]; v.Group == gv.Group && v.Version == gv.Version {
			return v
		}
	}
	return nil
}

func (t *Target) version(gv schema.GroupVersion, def *resource.VersionDef) *Version {
	v := &Version{Kind: gv.WithKind(t.a.Def.Kind), Resource: gv.WithResource(t.a.Def.Plural), def: def}
	if b := t.body(v); b != nil {
		v.Kind = schema.GroupVersionKind{Group: b.Group, Version: b.Version, Kind: b.Kind}
	}
	return v
}

// sub is the subresource that is written, as a version has it; nil: none.
func (t *Target) sub(v *Version) *resource.SubDef {
	switch {
	case t.a.Sub == "":
		return nil
	case v.def != nil:
		return v.def.Subresource(t.a.Sub)
	}
	return t.a.Def.Subresource(t.a.Sub)
}

func (t *Target) body(v *Version) *resource.Body {
	if s := t.sub(v); s != nil {
		return s.Body
	}
	return nil
}

// Equivalents are the other versions of the resource that clients can ask for, and that have
// the subresource.
func (t *Target) Equivalents() []*Version {
	if t.others != nil {
		return t.others
	}
	t.others = []*Version{}
	d, is := t.a.Def, t.Requested()
	add := func(gv schema.GroupVersion, def *resource.VersionDef) {
		v := t.version(gv, def)
		if v.Resource != is.Resource && (t.a.Sub == "" || t.sub(v) != nil) {
			t.others = append(t.others, v)
		}
	}
	if d.Dynamic == nil {
		add(d.GVK().GroupVersion(), nil)
	}
	for i := range d.Versions {
		if v := &d.Versions[i]; !v.OffByDefault && (v.Live == nil || !v.Live.Unserved) {
			add(schema.GroupVersion{Group: v.Group, Version: v.Version}, v)
		}
	}
	return t.others
}

// Name is that of the object; empty: the server is to make one.
func (t *Target) Name() string {
	if t.a.Name != "" {
		return t.a.Name
	}
	if obj, ok := t.a.Object.(resource.Object); ok && t.a.Sub == "" {
		return obj.GetName()
	}
	return ""
}

// In is the namespace of the request; of a namespace, itself.
func (t *Target) In() string {
	if t.a.Def.IsNamespace {
		return t.Name()
	}
	return t.a.Namespace
}

// Namespace is the one that the object is in; nil: it is in none. An error is that of the API.
func (t *Target) Namespace(ctx context.Context) (*corev1.Namespace, error) {
	if t.namespace != nil || !t.a.Def.Namespaced || t.a.Namespace == "" {
		return t.namespace, nil
	}
	ns, ok, err := admission.Find(ctx, t.o, admission.Reader(t.o, core.Namespaces), "", t.a.Namespace)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, apierrors.NewNotFound(core.Namespaces.Def.GroupResource(), t.a.Namespace)
	}
	t.namespace = ns
	return ns, nil
}

// At is the write at a version.
func (t *Target) At(ctx context.Context, v *Version) (*Form, error) {
	if f := t.forms[v]; f != nil {
		return f, nil
	}
	f := &Form{back: func(obj resource.Object) (resource.Object, error) {
		return Kind{t.a.Def, t.Requested().def, t.Requested().Kind}.convert(ctx, obj)
	}}
	var err error
	if f.Object, err = t.show(ctx, t.a.Object, v); err != nil {
		return nil, err
	}
	if t.a.Old != nil {
		if f.Old, err = t.show(ctx, t.a.Old, v); err != nil {
			return nil, err
		}
		if m, ok := f.Object.(metav1.Object); ok { // which the write itself goes without
			m.SetResourceVersion(t.a.Old.GetResourceVersion())
		}
	}
	if t.forms == nil {
		t.forms = map[*Version]*Form{}
	}
	t.forms[v] = f
	return f, nil
}

// show is an object at a version, with apiVersion and kind.
func (t *Target) show(ctx context.Context, from runtime.Object, v *Version) (runtime.Object, error) {
	if from == nil || reflect.ValueOf(from).IsNil() {
		return nil, nil
	}
	obj, whole := from.(resource.Object)
	if whole = whole && reflect.TypeOf(from) == reflect.TypeOf(t.a.Def.New()); !whole { // what a handler was sent
		out := from.DeepCopyObject()
		out.GetObjectKind().SetGroupVersionKind(v.Kind)
		return out, nil
	}
	if s := t.sub(v); s != nil && s.Body != nil && s.Get != nil {
		out := s.Get(obj)
		out.GetObjectKind().SetGroupVersionKind(v.Kind)
		return out, nil
	}
	return Kind{t.a.Def, v.def, v.Kind}.Show(ctx, obj)
}

// Kind is a resource at one of its versions.
type Kind struct {
	Def     *resource.Def
	Version *resource.VersionDef // nil: the version that is stored
	GVK     schema.GroupVersionKind
}

// Show is an object of the resource at the version, with apiVersion and kind. It shares parts with obj.
func (k Kind) Show(ctx context.Context, obj resource.Object) (resource.Object, error) {
	var err error
	switch {
	case k.Version == nil:
	case k.Def.Dynamic != nil:
		obj, err = k.convert(ctx, obj)
	default:
		obj, err = k.Version.From(obj)
	}
	if err != nil {
		return nil, fmt.Errorf("failed to convert object version: %w", err)
	}
	obj = cache.Shallow(obj)
	obj.GetObjectKind().SetGroupVersionKind(k.GVK)
	return obj, nil
}

// convert is an object of a kind that is known at run time only at the version, as its schema wants it.
func (k Kind) convert(ctx context.Context, obj resource.Object) (resource.Object, error) {
	all, err := k.Def.Shown(ctx, []resource.Object{obj}, k.Version)
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// Replace puts what a plugin has made of the object, at a version, in its place. obj is handed
// over. What the subresource does not write stays as it is.
// At must have been asked for that version.
func (t *Target) Replace(v *Version, obj runtime.Object) error {
	shown := t.forms[v]
	t.forms = nil
	s := t.sub(v)
	if s != nil && s.Body != nil && s.Set != nil {
		return s.Set(t.a.Object.(resource.Object), obj)
	}
	obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	made, whole := obj.(resource.Object)
	if !whole || s != nil && s.Body != nil {
		return t.put(obj)
	}
	if made.GetNamespace() != t.a.Namespace && t.a.Def.Namespaced {
		return apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	made.SetResourceVersion("")
	var err error
	switch d := t.a.Def; {
	case d.Dynamic != nil && shown == nil:
		err = fmt.Errorf("nobody has seen it at %s", v.Kind.Version)
	case d.Dynamic != nil:
		made, err = shown.back(made)
	case v.def != nil:
		v.def.Default(made)
		made, err = v.def.To(made)
	}
	if err != nil {
		return fmt.Errorf("failed to convert object: %w", err)
	}
	t.a.Def.Default(made)
	if s != nil && s.Merge != nil && t.a.Old != nil {
		s.Merge(made, t.a.Old)
	}
	return t.put(made)
}

// put overwrites the write's own object.
func (t *Target) put(obj runtime.Object) error {
	to, from := reflect.ValueOf(t.a.Object), reflect.ValueOf(obj)
	if to.Type() != from.Type() {
		return fmt.Errorf("object is a %T, want a %T", obj, t.a.Object)
	}
	to.Elem().Set(from.Elem())
	return nil
}

// Request is the write as expressions and webhooks see it at a version, without uid and objects.
// It is shared, and read-only.
func (t *Target) Request(v *Version) *admissionv1.AdmissionRequest {
	if r := t.requests[v]; r != nil {
		return r
	}
	if t.requests == nil {
		t.requests = map[*Version]*admissionv1.AdmissionRequest{}
	}
	r := t.request(v)
	t.requests[v] = r
	return r
}

func (t *Target) request(v *Version) *admissionv1.AdmissionRequest {
	a, asked := t.a, t.Requested()
	r := &admissionv1.AdmissionRequest{
		Kind: metav1.GroupVersionKind(v.Kind), Resource: metav1.GroupVersionResource(v.Resource), SubResource: a.Sub,
		RequestKind:     (*metav1.GroupVersionKind)(&asked.Kind),
		RequestResource: (*metav1.GroupVersionResource)(&asked.Resource), RequestSubResource: a.Sub,
		Name: t.Name(), Namespace: t.In(), Operation: admissionv1.Operation(a.Operation), DryRun: &a.DryRun,
	}
	if u := a.User; u != nil {
		r.UserInfo = authenticationv1.UserInfo{Username: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: map[string]authenticationv1.ExtraValue{}}
		for key, value := range u.GetExtra() {
			r.UserInfo.Extra[key] = value
		}
	}
	if a.Options != nil {
		options := a.Options.DeepCopyObject()
		if k := options.GetObjectKind(); k.GroupVersionKind().Empty() {
			k.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind(reflect.TypeOf(options).Elem().Name()))
		}
		r.Options = runtime.RawExtension{Object: options}
	}
	return r
}
