package patch

import (
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kemudi/kemudi/internal/resource"
)

// converter shows the versions of one resource to the library.
type converter struct{ def *resource.Def }

var (
	_ runtime.ObjectConvertor = (*converter)(nil)
	_ runtime.ObjectDefaulter = (*converter)(nil)
	_ runtime.ObjectCreater   = (*converter)(nil)
)

// ConvertToVersion returns in at the version that target names, with its kind
// and apiVersion set. The result may share parts with in.
func (c *converter) ConvertToVersion(in runtime.Object, target runtime.GroupVersioner) (runtime.Object, error) {
	gv, ok := target.(schema.GroupVersion)
	if !ok {
		return nil, fmt.Errorf("convert %s: cannot name a version by %T", c.def, target)
	}
	stored, err := c.toStorage(in)
	if err != nil {
		return nil, err
	}
	ver, ok := c.version(gv)
	if !ok {
		return nil, runtime.NewNotRegisteredErrForKind("kemudi", gv.WithKind(c.def.Kind))
	}
	out := stored
	if ver != nil {
		if out, err = ver.From(stored); err != nil {
			return nil, err
		}
	} else {
		out = shallow(stored)
	}
	out.GetObjectKind().SetGroupVersionKind(gv.WithKind(c.def.Kind))
	return out, nil
}

// version finds a version of the resource; nil is the storage version. The
// library asks for the storage version in other groups as well.
func (c *converter) version(gv schema.GroupVersion) (*resource.VersionDef, bool) {
	for i := range c.def.Versions {
		v := &c.def.Versions[i]
		if v.Group == gv.Group && v.Version == gv.Version {
			return v, true
		}
	}
	return nil, gv.Version == c.def.Version
}

// toStorage returns in at the storage version. A typed object of that version
// is returned as it is.
func (c *converter) toStorage(in runtime.Object) (resource.Object, error) {
	gvk := in.GetObjectKind().GroupVersionKind()
	if u, ok := in.(*unstructured.Unstructured); ok {
		typed, err := c.typed(u, gvk.GroupVersion())
		if err != nil {
			return nil, err
		}
		in = typed
	}
	obj, ok := in.(resource.Object)
	if !ok {
		return nil, fmt.Errorf("convert %s: got a %T", c.def, in)
	}
	if gvk.Empty() {
		return obj, nil
	}
	ver, ok := c.version(gvk.GroupVersion())
	if !ok {
		return nil, runtime.NewNotRegisteredErrForKind("kemudi", gvk)
	}
	if ver == nil {
		return obj, nil
	}
	stored, err := ver.To(obj.DeepCopyObject().(resource.Object))
	if err != nil {
		return nil, fmt.Errorf("convert %s from %s: %w", c.def, gvk.GroupVersion(), err)
	}
	return stored, nil
}

func (c *converter) typed(u *unstructured.Unstructured, gv schema.GroupVersion) (runtime.Object, error) {
	ver, ok := c.version(gv)
	if !ok {
		return nil, runtime.NewNotRegisteredErrForKind("kemudi", gv.WithKind(c.def.Kind))
	}
	obj := c.def.New()
	if ver != nil {
		obj = ver.New()
	}
	if _, ok := obj.(*unstructured.Unstructured); ok {
		return u, nil
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, obj); err != nil {
		return nil, fmt.Errorf("decode %s: %w", c.def, err)
	}
	return obj, nil
}

// Default fills unset fields of an object that came out of an apply.
func (c *converter) Default(in runtime.Object) {
	obj, ok := in.(resource.Object)
	if !ok {
		return
	}
	gv := in.GetObjectKind().GroupVersionKind().GroupVersion()
	if ver, ok := c.version(gv); ok && ver != nil {
		ver.Default(obj)
		return
	}
	c.def.Default(obj)
}

// New returns an empty object of a version of the resource, which says so unless that is
// the storage version.
func (c *converter) New(gvk schema.GroupVersionKind) (runtime.Object, error) {
	ver, ok := c.version(gvk.GroupVersion())
	switch {
	case !ok:
		return nil, runtime.NewNotRegisteredErrForKind("kemudi", gvk)
	case ver == nil:
		return c.def.New(), nil
	}
	obj := ver.New()
	obj.GetObjectKind().SetGroupVersionKind(gvk)
	return obj, nil
}

// Convert is not used by the library's field managers.
func (c *converter) Convert(_, _, _ any) error {
	return fmt.Errorf("convert %s: not possible in place", c.def)
}

// ConvertFieldLabel is not used by the library's field managers.
func (c *converter) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (string, string, error) {
	return label, value, nil
}

// shallow copies the struct that obj points to, but nothing that it refers to.
func shallow(obj resource.Object) resource.Object {
	v := reflect.ValueOf(obj).Elem()
	out := reflect.New(v.Type())
	out.Elem().Set(v)
	return out.Interface().(resource.Object)
}
