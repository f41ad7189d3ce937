package patch

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/kemudi/kemudi/internal/resource"
)

// Objects of kinds that are known at run time only are compared as trees, by the schema that the
// version has; what that leaves to the library works on unstructured objects.

// dynamicAt is how two such objects differ at a version.
func (c *changes) dynamicAt(gv schema.GroupVersion) (change, error) {
	v, err := versionOf(c.w.Def, gv)
	if err != nil {
		return change{}, errRare
	}
	live, err := c.w.tree(c.live, gv)
	if err != nil {
		return change{}, err
	}
	obj, err := c.w.tree(c.obj, gv)
	if err != nil {
		return change{}, err
	}
	of, err := v.Live.Types.ObjectToTyped(&unstructured.Unstructured{Object: map[string]any{"apiVersion": gv.String(), "kind": c.w.Def.Kind}})
	if err != nil {
		return change{}, errRare
	}
	return compareTrees(of, live, obj, skippedAt(c.w, v))
}

// skippedAt is skipped for a version of its own.
func skippedAt(w Write, v *resource.VersionDef) string {
	if w.Sub == "" && v.Subresource("status") != nil {
		return "status"
	}
	if w.Sub == "status" {
		return "spec"
	}
	return ""
}

// versionOf finds a version of a kind that is known at run time only.
func versionOf(def *resource.Def, gv schema.GroupVersion) (*resource.VersionDef, error) {
	if v := def.VersionNamed(gv.Version); v != nil && gv.Group == def.Group {
		return v, nil
	}
	return nil, runtime.NewNotRegisteredErrForKind("kemudi", gv.WithKind(def.Kind))
}

// tree is an object at a version, without its managed fields.
func (w *Write) tree(obj resource.Object, gv schema.GroupVersion) (map[string]any, error) {
	if w.Def.Dynamic.VersionOf(obj) != gv.Version {
		var err error
		if obj, err = w.Convert(obj, gv.Version); err != nil {
			return nil, err
		}
	}
	t, ok := obj.(resource.Tree)
	if !ok {
		return nil, errRare
	}
	return t.Bare(), nil
}

// updateDynamic is updateByLibrary for kinds that are known at run time only.
func (f *Fields) updateDynamic(w Write, live, obj resource.Object) {
	m, err := dynamicManager(w)
	was, ok := live.(resource.Tree)
	is, too := obj.(resource.Tree)
	if err != nil || !ok || !too {
		obj.SetManagedFields(live.GetManagedFields())
		return
	}
	next := &unstructured.Unstructured{Object: is.View()}
	m.UpdateNoErrors(&unstructured.Unstructured{Object: was.View()}, next, w.Manager)
	obj.SetManagedFields(next.GetManagedFields())
}

// applyDynamic is Apply for such kinds. The result is at the version that the client speaks.
func (f *Fields) applyDynamic(w Write, live resource.Object, applied runtime.Object) (resource.Object, error) {
	m, err := dynamicManager(w)
	if err != nil {
		return nil, err
	}
	was, ok := live.(resource.Tree)
	if !ok {
		return nil, fmt.Errorf("apply %s: got a %T", w.Def, live)
	}
	merged, err := m.Apply(&unstructured.Unstructured{Object: was.View()}, applied.DeepCopyObject(), w.Manager, w.Force)
	if err != nil {
		return nil, f.tellUndeclared(w, applied, err)
	}
	u, ok := merged.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("apply %s: got a %T", w.Def, merged)
	}
	return w.document(u.Object)
}

// document is the object of the client's version that a tree is.
func (w *Write) document(tree map[string]any) (resource.Object, error) {
	v, err := versionOf(w.Def, w.GV)
	if err != nil {
		return nil, err
	}
	obj := v.New()
	t, ok := obj.(resource.Tree)
	if !ok {
		return nil, fmt.Errorf("%s has objects of a type of their own", w.Def)
	}
	return obj, t.SetTree(tree)
}

func dynamicManager(w Write) (*managedfields.FieldManager, error) {
	conv := documents{w}
	m, err := managedfields.NewDefaultCRDFieldManager(dynamicTypes{w.Def}, conv, conv, conv,
		w.GV.WithKind(w.Def.Kind), w.GV, w.Sub, resetDynamic(w.Def, w.Sub))
	if err != nil {
		return nil, fmt.Errorf("keep fields of %s: %w", w.Def, err)
	}
	return m, nil
}

// resetDynamic is reset for kinds whose versions differ in their subresources.
func resetDynamic(d *resource.Def, sub string) map[fieldpath.APIVersion]fieldpath.Filter {
	filters := map[fieldpath.APIVersion]fieldpath.Filter{}
	for i := range d.Versions {
		v := &d.Versions[i]
		var drop *fieldpath.Set
		switch {
		case sub == "status":
			drop = fieldpath.NewSet(fieldpath.MakePathOrDie("metadata"), fieldpath.MakePathOrDie("spec"))
		case sub == "" && v.Subresource("status") != nil:
			drop = fieldpath.NewSet(fieldpath.MakePathOrDie("status"))
		default:
			continue
		}
		filters[fieldpath.APIVersion(schema.GroupVersion{Group: v.Group, Version: v.Version}.String())] = fieldpath.NewExcludeSetFilter(drop)
	}
	return filters
}

// dynamicTypes reads objects of all versions of a kind.
type dynamicTypes struct{ def *resource.Def }

var _ managedfields.TypeConverter = dynamicTypes{}

// ObjectToTyped reads an object by the schema of its version.
func (t dynamicTypes) ObjectToTyped(obj runtime.Object, opts ...typed.ValidationOptions) (*typed.TypedValue, error) {
	v, err := versionOf(t.def, obj.GetObjectKind().GroupVersionKind().GroupVersion())
	if err != nil {
		return nil, err
	}
	if tree, ok := obj.(resource.Tree); ok {
		obj = &unstructured.Unstructured{Object: tree.View()}
	}
	return v.Live.Types.ObjectToTyped(obj, opts...)
}

// TypedToObject is an unstructured object.
func (t dynamicTypes) TypedToObject(value *typed.TypedValue) (runtime.Object, error) {
	fields, ok := value.AsValue().Unstructured().(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%s: the result is no object", t.def)
	}
	return &unstructured.Unstructured{Object: fields}, nil
}

// documents shows the versions of such a kind to the library, for one write.
type documents struct{ w Write }

var (
	_ runtime.ObjectConvertor = documents{}
	_ runtime.ObjectDefaulter = documents{}
	_ runtime.ObjectCreater   = documents{}
)

// ConvertToVersion returns in at the version that target names.
func (d documents) ConvertToVersion(in runtime.Object, target runtime.GroupVersioner) (runtime.Object, error) {
	gv, ok := target.(schema.GroupVersion)
	u, isDoc := in.(*unstructured.Unstructured)
	if !ok || !isDoc {
		return nil, fmt.Errorf("convert %s: cannot convert a %T to what a %T names", d.w.Def, in, target)
	}
	from := u.GroupVersionKind().GroupVersion()
	if from == gv {
		return u, nil
	}
	for _, gv := range []schema.GroupVersion{from, gv} {
		if _, err := versionOf(d.w.Def, gv); err != nil {
			return nil, err
		}
	}
	at := d.w
	at.GV = from
	obj, err := at.document(u.DeepCopy().Object)
	if err == nil {
		obj, err = d.w.Convert(obj, gv.Version)
	}
	if err != nil {
		return nil, err
	}
	out := &unstructured.Unstructured{Object: obj.(resource.Tree).View()}
	out.SetAPIVersion(gv.String())
	return out, nil
}

// Default fills unset fields of an object that came out of an apply.
func (d documents) Default(in runtime.Object) {
	u, ok := in.(*unstructured.Unstructured)
	if !ok {
		return
	}
	at := d.w
	at.GV = u.GroupVersionKind().GroupVersion()
	v, err := versionOf(at.Def, at.GV)
	if err != nil {
		return
	}
	if obj, err := at.document(u.DeepCopy().Object); err == nil {
		v.Live.Fill(obj)
		u.Object = obj.(resource.Tree).View()
	}
}

// New returns an empty object of a version of the kind.
func (d documents) New(gvk schema.GroupVersionKind) (runtime.Object, error) {
	if _, err := versionOf(d.w.Def, gvk.GroupVersion()); err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetGroupVersionKind(gvk)
	return u, nil
}

// Convert is not used by the library's field managers.
func (d documents) Convert(_, _, _ any) error {
	return fmt.Errorf("convert %s: not possible in place", d.w.Def)
}

// ConvertFieldLabel is not used by the library's field managers.
func (d documents) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (string, string, error) {
	return label, value, nil
}
