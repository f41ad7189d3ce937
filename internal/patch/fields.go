package patch

import (
	"fmt"
	"reflect"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/kemudi/kemudi/internal/layout"
	"github.com/kemudi/kemudi/internal/resource"
)

// Fields keeps metadata.managedFields and performs server-side apply for a set
// of resources. It may be used concurrently.
type Fields struct {
	writers sync.Pool // of *setWriter

	mu struct {
		sync.Mutex
		managers map[target]*managedfields.FieldManager
		plans    map[target]plan
	}
}

// plan is the plan of a kind at a version, or why there is none.
type plan struct {
	root *node
	err  error
}

// target is what a field manager of the library is made for.
type target struct {
	def *resource.Def
	gv  schema.GroupVersion
	sub string
}

// Warm reads the schema of the built-in kinds now, so that the first write need
// not wait for it.
func Warm() { types() }

// NewFields returns the field keeper of the built-in kinds.
func NewFields() *Fields {
	f := &Fields{writers: sync.Pool{New: func() any { return &setWriter{} }}}
	f.mu.managers, f.mu.plans = map[target]*managedfields.FieldManager{}, map[target]plan{}
	return f
}

// Write is one write as the field keeper sees it. Objects are of the storage
// version and have no kind and apiVersion of their own.
type Write struct {
	Def     *resource.Def
	GV      schema.GroupVersion // the version that the client speaks
	Sub     string              // the subresource that is written
	Manager string
	Force   bool // apply: take conflicting fields over

	// Convert shows an object at another version; of kinds that are known at run time only,
	// whose objects are of the version that the client speaks.
	Convert func(obj resource.Object, to string) (resource.Object, error)
}

// Update records in obj's managedFields that the manager set all that differs
// from live, which is nil for a new object.
func (f *Fields) Update(w Write, live, obj resource.Object) {
	if live == nil {
		live = w.blank()
	}
	if !layout.Library && f.update(w, live, obj) == nil {
		return
	}
	if w.Def.Dynamic != nil {
		f.updateDynamic(w, live, obj)
		return
	}
	f.updateByLibrary(w, live, obj)
}

// blank is what there is before an object is made.
func (w *Write) blank() resource.Object {
	if v := w.Def.VersionNamed(w.GV.Version); v != nil && w.Def.Dynamic != nil {
		return v.New()
	}
	return w.Def.New()
}

// updateByLibrary does the same by the library: for what our code leaves to it.
func (f *Fields) updateByLibrary(w Write, live, obj resource.Object) {
	m, err := f.manager(w)
	if err != nil {
		obj.SetManagedFields(live.GetManagedFields())
		return
	}
	m.UpdateNoErrors(live, obj, w.Manager)
}

// node returns the plan of the kind at a version.
func (f *Fields) node(d *resource.Def, gv schema.GroupVersion) (*node, error) {
	key := target{def: d, gv: gv}
	f.mu.Lock()
	defer f.mu.Unlock()
	if p, ok := f.mu.plans[key]; ok {
		return p.root, p.err
	}
	n, err := f.makePlan(d, gv)
	f.mu.plans[key] = plan{n, err}
	return n, err
}

func (f *Fields) makePlan(d *resource.Def, gv schema.GroupVersion) (*node, error) {
	conv := &converter{def: d}
	obj, err := conv.New(gv.WithKind(d.Kind))
	if err != nil {
		return nil, err
	}
	if _, ok := obj.(runtime.Unstructured); ok {
		return nil, errRare
	}
	t := reflect.TypeOf(obj)
	obj.GetObjectKind().SetGroupVersionKind(gv.WithKind(d.Kind))
	types, err := typesOf(d)
	if err != nil {
		return nil, err
	}
	typed, err := types.ObjectToTyped(obj)
	if err != nil {
		return nil, err
	}
	p := &planner{schema: typed.Schema(), done: map[planKey]*node{}}
	root, err := p.plan(t, typed.TypeRef())
	if err != nil {
		return nil, err
	}
	root.fields = slices.DeleteFunc(root.fields, func(f fieldNode) bool { return f.name == "apiVersion" || f.name == "kind" })
	for i := range root.fields {
		if f := &root.fields[i]; f.name == "metadata" {
			f.node = ownMetadata(f.node)
		}
	}
	return root, nil
}

// pointer is where an object's struct lies.
func pointer(obj resource.Object) layout.Ptr { return layout.PtrOf(obj) }

// Apply merges applied, which is of the version that the client speaks and
// names it, into live (nil: there is none), and returns the result in the
// storage version. Errors are what the API answers.
func (f *Fields) Apply(w Write, live resource.Object, applied runtime.Object) (resource.Object, error) {
	if live == nil {
		live = w.blank()
	}
	if w.Def.Dynamic != nil {
		return f.applyDynamic(w, live, applied)
	}
	if u, ok := applied.(*unstructured.Unstructured); ok && !layout.Library {
		if obj, err := f.apply(w, live, u); err == nil {
			return obj, nil
		}
	}
	obj, err := f.applyByLibrary(w, live, applied.DeepCopyObject())
	if err != nil {
		return nil, f.tellUndeclared(w, applied, err)
	}
	return obj, nil
}

// applyByLibrary does the same by the library.
func (f *Fields) applyByLibrary(w Write, live resource.Object, applied runtime.Object) (resource.Object, error) {
	m, err := f.manager(w)
	if err != nil {
		return nil, err
	}
	obj, err := m.Apply(live, applied, w.Manager, w.Force)
	if err != nil {
		return nil, err
	}
	stored, ok := obj.(resource.Object)
	if !ok {
		return nil, fmt.Errorf("apply %s: got a %T", w.Def, obj)
	}
	return stored, nil
}

func (f *Fields) manager(w Write) (*managedfields.FieldManager, error) {
	key := target{w.Def, w.GV, w.Sub}
	f.mu.Lock()
	defer f.mu.Unlock()
	if m := f.mu.managers[key]; m != nil {
		return m, nil
	}
	conv := &converter{def: w.Def}
	types, err := typesOf(w.Def)
	if err != nil {
		return nil, err
	}
	m, err := managedfields.NewDefaultFieldManager(types, conv, conv, conv,
		w.GV.WithKind(w.Def.Kind), w.Def.GVK().GroupVersion(), w.Sub, reset(w.Def, w.Sub))
	if err != nil {
		return nil, fmt.Errorf("keep fields of %s: %w", w.Def, err)
	}
	f.mu.managers[key] = m
	return m, nil
}

// reset returns the fields that a write through sub cannot set, so that nobody
// owns them by it: status for the object itself, everything else for status.
func reset(d *resource.Def, sub string) map[fieldpath.APIVersion]fieldpath.Filter {
	var drop *fieldpath.Set
	switch {
	case sub == "status":
		drop = fieldpath.NewSet(fieldpath.MakePathOrDie("spec"))
		switch d.Subresource(sub).Keeps {
		case resource.KeepsLabels:
			drop.Insert(fieldpath.MakePathOrDie("metadata", "labels"))
		case resource.KeepsMetadata:
			drop.Insert(fieldpath.MakePathOrDie("metadata"))
		}
	case sub == "" && d.Subresource("status") != nil:
		drop = fieldpath.NewSet(fieldpath.MakePathOrDie("status"))
	default:
		return nil
	}
	filter := fieldpath.NewExcludeSetFilter(drop)
	filters := map[fieldpath.APIVersion]fieldpath.Filter{fieldpath.APIVersion(d.GVK().GroupVersion().String()): filter}
	for _, v := range d.Versions {
		filters[fieldpath.APIVersion(schema.GroupVersion{Group: v.Group, Version: v.Version}.String())] = filter
	}
	return filters
}
