package main

import (
	"context"
	"fmt"
	"net/http"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/names"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

const nodeNameField = "spec.nodeName"

// registry makes the stores.
type registry struct {
	scheme  *runtime.Scheme
	options generic.RESTOptionsGetter
}

// resources are the stores of what is served, by version and path.
func (r registry) resources() (map[schema.GroupVersion]map[string]rest.Storage, error) {
	core, leases := map[string]rest.Storage{}, map[string]rest.Storage{}
	for _, k := range []kind{
		{"namespaces", "namespace", false, func() runtime.Object { return &corev1.Namespace{} }, func() runtime.Object { return &corev1.NamespaceList{} }},
		{"nodes", "node", false, func() runtime.Object { return &corev1.Node{} }, func() runtime.Object { return &corev1.NodeList{} }},
		{"configmaps", "configmap", true, func() runtime.Object { return &corev1.ConfigMap{} }, func() runtime.Object { return &corev1.ConfigMapList{} }},
	} {
		s, err := r.store(corev1.SchemeGroupVersion, k, strategy{scheme: r.scheme, namespaced: k.namespaced}, nil)
		if err != nil {
			return nil, err
		}
		core[k.plural] = resource{s, k.singular}
	}
	lease := kind{"leases", "lease", true, func() runtime.Object { return &coordinationv1.Lease{} }, func() runtime.Object { return &coordinationv1.LeaseList{} }}
	s, err := r.store(coordinationv1.SchemeGroupVersion, lease, strategy{scheme: r.scheme, namespaced: true}, nil)
	if err != nil {
		return nil, err
	}
	leases[lease.plural] = resource{s, lease.singular}
	if err := r.pods(core); err != nil {
		return nil, err
	}
	return map[schema.GroupVersion]map[string]rest.Storage{corev1.SchemeGroupVersion: core, coordinationv1.SchemeGroupVersion: leases}, nil
}

// pods adds pods, their status and their binding.
func (r registry) pods(to map[string]rest.Storage) error {
	k := kind{"pods", "pod", true, func() runtime.Object { return &corev1.Pod{} }, func() runtime.Object { return &corev1.PodList{} }}
	s, err := r.store(corev1.SchemeGroupVersion, k, podStrategy(r.scheme), &generic.StoreOptions{
		RESTOptions: r.options, AttrFunc: podAttributes,
		TriggerFunc: storage.IndexerFuncs{nodeNameField: func(obj runtime.Object) string { return obj.(*corev1.Pod).Spec.NodeName }},
		Indexers: &cache.Indexers{storage.FieldIndex(nodeNameField): func(obj any) ([]string, error) {
			pod, ok := obj.(*corev1.Pod)
			if !ok {
				return nil, fmt.Errorf("%T is no pod", obj)
			}
			return []string{pod.Spec.NodeName}, nil
		}},
	})
	if err != nil {
		return err
	}
	ofStatus := *s
	status := podStatusStrategy(r.scheme)
	ofStatus.UpdateStrategy, ofStatus.ResetFieldsStrategy = status, status
	to["pods"] = resource{s, k.singular}
	to["pods/status"] = podStatus{&ofStatus}
	to["pods/binding"] = podBinding{s}
	return nil
}

// kind is what the stores differ in.
type kind struct {
	plural, singular string
	namespaced       bool
	object, list     func() runtime.Object
}

func (r registry) store(gv schema.GroupVersion, k kind, s strategy, options *generic.StoreOptions) (*genericregistry.Store, error) {
	name := gv.WithResource(k.plural).GroupResource()
	store := &genericregistry.Store{
		NewFunc: k.object, NewListFunc: k.list,
		DefaultQualifiedResource: name, SingularQualifiedResource: gv.WithResource(k.singular).GroupResource(),
		CreateStrategy: s, UpdateStrategy: s, DeleteStrategy: s, ResetFieldsStrategy: s,
		TableConvertor: rest.NewDefaultTableConvertor(name),
	}
	if options == nil {
		options = &generic.StoreOptions{RESTOptions: r.options}
	} else {
		attrs := options.AttrFunc
		store.PredicateFunc = func(label labels.Selector, field fields.Selector) storage.SelectionPredicate {
			return storage.SelectionPredicate{Label: label, Field: field, GetAttrs: attrs, IndexFields: []string{nodeNameField}}
		}
	}
	if err := store.CompleteWithOptions(options); err != nil {
		return nil, fmt.Errorf("make store of %s: %w", k.plural, err)
	}
	return store, nil
}

// podAttributes are what pods are selected by.
func podAttributes(obj runtime.Object) (labels.Set, fields.Set, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return nil, nil, fmt.Errorf("%T is no pod", obj)
	}
	set := fields.Set{"metadata.name": pod.Name, "metadata.namespace": pod.Namespace, nodeNameField: pod.Spec.NodeName, "status.phase": string(pod.Status.Phase)}
	return pod.Labels, set, nil
}

// resource is a store with the name that the library asks for.
type resource struct {
	*genericregistry.Store
	singular string
}

func (r resource) GetSingularName() string { return r.singular }

// podStatus is the subresource status.
type podStatus struct{ store *genericregistry.Store }

var (
	_ rest.Patcher             = podStatus{}
	_ rest.ResetFieldsStrategy = podStatus{}
	_ rest.NamedCreater        = podBinding{}
)

func (podStatus) New() runtime.Object { return &corev1.Pod{} }
func (podStatus) Destroy()            {}

func (p podStatus) Get(ctx context.Context, name string, o *metav1.GetOptions) (runtime.Object, error) {
	return p.store.Get(ctx, name, o)
}

func (p podStatus) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc, update rest.ValidateObjectUpdateFunc, _ bool, o *metav1.UpdateOptions) (runtime.Object, bool, error) {
	return p.store.Update(ctx, name, info, create, update, false, o)
}

func (p podStatus) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return p.store.GetResetFields()
}

// podBinding is the subresource binding: it gives a pod its node.
type podBinding struct{ store *genericregistry.Store }

func (podBinding) New() runtime.Object { return &corev1.Binding{} }
func (podBinding) Destroy()            {}

func (p podBinding) Create(ctx context.Context, name string, obj runtime.Object, validate rest.ValidateObjectFunc, o *metav1.CreateOptions) (runtime.Object, error) {
	binding, ok := obj.(*corev1.Binding)
	if !ok {
		return nil, errors.NewBadRequest(fmt.Sprintf("%T is no binding", obj))
	}
	if validate != nil {
		if err := validate(ctx, obj); err != nil {
			return nil, err
		}
	}
	bind := func(_ context.Context, _, old runtime.Object) (runtime.Object, error) {
		pod, ok := old.DeepCopyObject().(*corev1.Pod)
		if !ok {
			return nil, errors.NewBadRequest(fmt.Sprintf("%T is no pod", old))
		}
		if pod.Spec.NodeName != "" {
			return nil, errors.NewConflict(p.store.DefaultQualifiedResource, name, fmt.Errorf("pod is assigned to node %q", pod.Spec.NodeName))
		}
		pod.Spec.NodeName = binding.Target.Name
		return pod, nil
	}
	_, _, err := p.store.Update(ctx, name, rest.DefaultUpdatedObjectInfo(nil, bind), nil, nil, false, &metav1.UpdateOptions{DryRun: o.DryRun})
	if err != nil {
		return nil, err
	}
	return &metav1.Status{Status: metav1.StatusSuccess, Code: http.StatusCreated}, nil
}

// strategy is what writes of a kind do, beyond what the library does for all.
type strategy struct {
	scheme     *runtime.Scheme
	namespaced bool
	create     func(obj runtime.Object)      // nil: nothing is prepared
	update     func(obj, old runtime.Object) // the same
	reset      map[fieldpath.APIVersion]*fieldpath.Set
}

var (
	_ rest.RESTCreateStrategy  = strategy{}
	_ rest.RESTUpdateStrategy  = strategy{}
	_ rest.ResetFieldsStrategy = strategy{}
)

// podStrategy keeps the status of a pod from whom writes the rest.
func podStrategy(scheme *runtime.Scheme) strategy {
	return strategy{
		scheme: scheme, namespaced: true, reset: resetting("status"),
		create: func(obj runtime.Object) {
			obj.(*corev1.Pod).Status = corev1.PodStatus{Phase: corev1.PodPending, QOSClass: corev1.PodQOSBurstable}
		},
		update: func(obj, old runtime.Object) { obj.(*corev1.Pod).Status = old.(*corev1.Pod).Status },
	}
}

// podStatusStrategy keeps the rest of a pod from whom writes the status.
func podStatusStrategy(scheme *runtime.Scheme) strategy {
	return strategy{
		scheme: scheme, namespaced: true, reset: resetting("spec"),
		update: func(obj, old runtime.Object) { obj.(*corev1.Pod).Spec = old.(*corev1.Pod).Spec },
	}
}

// resetting are the fields that a write of pods leaves as they are.
func resetting(name string) map[fieldpath.APIVersion]*fieldpath.Set {
	return map[fieldpath.APIVersion]*fieldpath.Set{"v1": fieldpath.NewSet(fieldpath.MakePathOrDie(name))}
}

func (s strategy) ObjectKinds(obj runtime.Object) ([]schema.GroupVersionKind, bool, error) {
	return s.scheme.ObjectKinds(obj)
}
func (s strategy) Recognizes(gvk schema.GroupVersionKind) bool { return s.scheme.Recognizes(gvk) }
func (strategy) GenerateName(base string) string               { return names.SimpleNameGenerator.GenerateName(base) }
func (s strategy) NamespaceScoped() bool                       { return s.namespaced }

func (s strategy) PrepareForCreate(_ context.Context, obj runtime.Object) {
	if s.create != nil {
		s.create(obj)
	}
}

func (s strategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	if s.update != nil {
		s.update(obj, old)
	}
}

func (strategy) Validate(context.Context, runtime.Object) field.ErrorList { return nil }
func (strategy) ValidateUpdate(context.Context, runtime.Object, runtime.Object) field.ErrorList {
	return nil
}
func (strategy) WarningsOnCreate(context.Context, runtime.Object) []string { return nil }
func (strategy) WarningsOnUpdate(context.Context, runtime.Object, runtime.Object) []string {
	return nil
}
func (strategy) Canonicalize(runtime.Object)                   {}
func (strategy) AllowCreateOnUpdate(context.Context) bool      { return false }
func (strategy) AllowUnconditionalUpdate(context.Context) bool { return true }
func (s strategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return s.reset
}
