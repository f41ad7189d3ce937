package custom

import (
	"cmp"
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/managedfields"

	"github.com/kemudi/kemudi/internal/resource"
)

// Define returns the resource of a kind. The kind's names have been checked.
func Define(k Kind) *resource.Resource[*Object] {
	k.StoragePrefix = cmp.Or(k.StoragePrefix, k.Group+"/"+k.Plural)
	of := &family{k.Group, k.Kind}
	blank := func(version string) func() resource.Object {
		return func() resource.Object { return &Object{of: of, at: version, tree: &tree{}} }
	}
	s := resource.Spec[*Object]{
		Names: k.Names, HasGeneration: true, Update: resource.UpdateNeedsRevision, Warn: warnOfFinalizers,
	}
	if k.Ending {
		s.Verbs = resource.AllVerbs &^ resource.Create // finalizers must be taken away
	}
	for i := range k.Versions {
		v := k.Versions[i].define(k.Group)
		v.New = blank(v.Version)
		s.Versions = append(s.Versions, v)
	}
	r := resource.Define(s)
	r.New = blank(k.Version)
	r.Dynamic = &resource.Dynamic{
		ID: k.ID, Remote: k.Convert != nil, Convert: k.converter(),
		VersionOf:   func(obj resource.Object) string { return obj.(*Object).at },
		SameDesired: func(a, b resource.Object) bool { return sameBody(a.(*Object), b.(*Object)) },
	}
	if v := r.VersionNamed(k.Version); v != nil {
		r.Sub = v.Sub
	}
	if k.Replaces != nil {
		r.Replaces = k.Replaces.Base()
	}
	return r
}

// converter is Convert for who does not know the type of objects. Objects that are at the version already are left out.
func (k *Kind) converter() func(ctx context.Context, objs []resource.Object, to string) ([]resource.Object, error) {
	return func(ctx context.Context, objs []resource.Object, to string) ([]resource.Object, error) {
		out := make([]resource.Object, len(objs))
		var others []*Object
		var at []int
		for i, obj := range objs {
			o := obj.(*Object)
			switch {
			case o.at == to:
				out[i] = o
			case k.Convert == nil:
				next := o.copy()
				next.at, next.normal = to, ""
				out[i] = next
			default:
				others, at = append(others, o), append(at, i)
			}
		}
		if len(others) == 0 {
			return out, nil
		}
		converted, err := k.Convert(ctx, others, to)
		if err != nil {
			return nil, err
		}
		if len(converted) != len(others) {
			return nil, fmt.Errorf("convert %s to %s: got %d objects for %d", k.Names.String(), to, len(converted), len(others))
		}
		for i, o := range converted {
			o.TypeMeta, o.at = metav1.TypeMeta{}, to
			out[at[i]] = o
		}
		return out, nil
	}
}

// define is the version for who does not know the type of objects.
func (v Version) define(group string) resource.Version[*Object] {
	live := &resource.Live{
		Unserved: !v.Served, ID: v.ID, Normal: v.normal, Pruned: v.pruned, Types: v.Types, Model: v.Model,
		Normalize: func(obj resource.Object) { v.normalize(obj.(*Object)) },
		Fill:      func(obj resource.Object) { v.fill(obj.(*Object)) },
		Fields:    map[string]func(resource.Object) string{},
	}
	if live.Types == nil {
		live.Types = managedfields.NewDeducedTypeConverter()
	}
	if v.Unknown != nil {
		live.Unknown = func(obj resource.Object) []string { return v.Unknown(obj.(*Object)) }
	}
	if v.Malformed != nil {
		live.Malformed = func(obj resource.Object) error { return v.Malformed(obj.(*Object)) }
	}
	live.Validate = func(ctx context.Context, obj, old resource.Object, sub string, errs *resource.Errors) {
		v.validate(ctx, obj, old, sub, errs)
	}
	for _, c := range v.Columns {
		live.Columns = append(live.Columns, resource.Column[resource.Object]{
			Name: c.Name, Type: c.Type, Format: c.Format, Description: c.Description, Priority: c.Priority,
			Value: func(obj resource.Object) any { return c.Value(obj.(*Object)) },
		})
	}
	for name, f := range v.Fields {
		live.Fields[name] = func(obj resource.Object) string { return f(obj.(*Object)) }
	}
	out := resource.Version[*Object]{Group: group, Version: v.Name, Deprecated: v.Deprecated, Live: live, Prepare: v.prepare}
	if v.Status {
		out.Sub = append(out.Sub, resource.Status(onlyStatus))
	}
	if v.Scale != nil {
		out.Sub = append(out.Sub, v.Scale.subresource())
	}
	return out
}

// normal is the object as the version serves it.
func (v *Version) normal(obj resource.Object) resource.Object {
	o := obj.(*Object)
	if v.Default == nil && v.Prune == nil || v.ID != "" && o.normal == v.ID {
		return o
	}
	next := o.copy()
	v.normalize(next)
	if o.body != "" && next.Pack() == nil && next.body == o.body {
		return o // it was stored so
	}
	return next
}

// pruned is the same of an object that was normal at another version: it has that one's defaults.
func (v *Version) pruned(obj resource.Object) resource.Object {
	o := obj.(*Object)
	if v.Prune == nil {
		return o
	}
	next := o.copy()
	v.Prune(next)
	next.normal = v.ID
	return next
}

// normalize does the same as normal to an object of the caller's own.
func (v *Version) normalize(o *Object) {
	if v.ID != "" && o.normal == v.ID {
		return
	}
	if v.Default != nil {
		v.Default(o)
	}
	if v.Prune != nil {
		v.Prune(o)
	}
	o.normal = v.ID
}

// fill gives an object of the caller's own, which has come of an apply, its defaults. The schema knows what
// is applied, unless there are things in it that an apply does not look at.
func (v *Version) fill(o *Object) {
	if v.Default != nil {
		v.Default(o)
	}
	if v.Prune != nil && (v.Unknown == nil || len(v.Unknown(o)) > 0) {
		v.Prune(o)
	}
	o.normal = v.ID
}

func (v *Version) validate(ctx context.Context, obj, old resource.Object, sub string, errs *resource.Errors) {
	o := obj.(*Object)
	if v.Validate == nil {
		return
	}
	was, _ := old.(*Object)
	v.Validate(ctx, o, was, sub, errs)
}

// prepare keeps the status out of what clients write into the object itself. What a new object lacks then and
// has a default is there when it is read.
func (v *Version) prepare(obj, old *Object) {
	if !v.Status {
		return
	}
	var was any
	there := false
	if old != nil {
		was, there = old.Body()["status"]
	}
	if _, sent := obj.Body()["status"]; !sent && !there {
		return
	}
	if !there {
		obj.Edit(func(body map[string]any) { delete(body, "status") })
		return
	}
	id := obj.normal
	obj.Edit(func(body map[string]any) { body["status"] = was })
	obj.normal = id // what was stored is as normal as what was sent
}

// onlyStatus has obj, which is sent to the subresource, be old but for its status. Who may write
// it is found out by what it says of revision and identity; its managed fields follow.
func onlyStatus(obj, old *Object) {
	status, there := obj.Body()["status"]
	meta := *old.ObjectMeta.DeepCopy()
	meta.ResourceVersion, meta.UID, meta.ManagedFields = obj.ResourceVersion, obj.UID, obj.ManagedFields
	obj.ObjectMeta = meta
	body := old.copy().Body()
	if there {
		body["status"] = status
	} else {
		delete(body, "status")
	}
	id := obj.normal
	obj.SetBody(body)
	obj.normal = id // what was stored has no further defaults
}
