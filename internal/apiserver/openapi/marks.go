package openapi

import (
	"cmp"
	"encoding/json"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// marks say which kinds schemas are those of, by the schemas' names. They are of all
// kinds that there are, served or not: a document does not change with what
// others hold.
type marks map[string][]schema.GroupVersionKind

// newMarks are those of the types of built-in kinds, of their lists and of what their subresources take.
func newMarks(kinds map[schema.GroupVersion][]kind) marks {
	m := marks{}
	every := map[schema.GroupVersion]bool{}
	for gv := range scheme.Scheme.AllKnownTypes() {
		if gv.Kind == "DeleteOptions" {
			every[gv.GroupVersion()] = true
		}
	}
	for _, gv := range []schema.GroupVersion{
		{Group: "admission.k8s.io", Version: "v1"}, {Group: "admission.k8s.io", Version: "v1beta1"},
		{Group: "apiextensions.k8s.io", Version: "v1"}, {Group: "apiextensions.k8s.io", Version: "v1beta1"},
		{Group: "apiregistration.k8s.io", Version: "v1"}, {Group: "apiregistration.k8s.io", Version: "v1beta1"},
		{Group: "imagepolicy.k8s.io", Version: "v1alpha1"},
	} {
		every[gv] = true
	}
	for gv, list := range kinds {
		for i := range list {
			k := &list[i]
			if k.live != nil {
				continue
			}
			every[gv] = true
			m.mark(modelName(k.typ), k.gvk)
			m.mark(listName(k), gv.WithKind(k.listKind()))
			for j := range k.subs {
				if b := k.subs[j].Body; b != nil {
					m.mark(modelName(typeOf(b.New())), gvkOf(b))
				}
			}
		}
	}
	for gv := range every {
		m.mark(modelName(reflect.TypeFor[metav1.DeleteOptions]()), gv.WithKind("DeleteOptions"))
		m.mark(modelName(reflect.TypeFor[metav1.WatchEvent]()), gv.WithKind("WatchEvent"))
	}
	for _, t := range []reflect.Type{
		reflect.TypeFor[metav1.Status](), reflect.TypeFor[metav1.APIVersions](), reflect.TypeFor[metav1.APIGroup](),
		reflect.TypeFor[metav1.APIGroupList](), reflect.TypeFor[metav1.APIResourceList](),
	} {
		m.mark(modelName(t), metav1.Unversioned.WithKind(t.Name()))
	}
	for _, list := range m {
		slices.SortFunc(list, func(a, b schema.GroupVersionKind) int {
			return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Kind, b.Kind))
		})
	}
	return m
}

func (m marks) mark(name string, gvk schema.GroupVersionKind) {
	if !slices.Contains(m[name], gvk) {
		m[name] = append(m[name], gvk)
	}
}

// add returns the text of a schema with its marks.
func (m marks) add(name string, text json.RawMessage) json.RawMessage {
	if len(m[name]) == 0 || len(text) < 2 {
		return text
	}
	var list []any
	for _, gvk := range m[name] {
		list = append(list, gvkExtension(gvk))
	}
	// Maps and texts are always encoded.
	entries, _ := json.Marshal(list)
	out := append(slices.Clip(text[:len(text)-1]), `,"x-kubernetes-group-version-kind":`...)
	return append(append(out, entries...), '}')
}
