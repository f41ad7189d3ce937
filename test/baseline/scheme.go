package main

import (
	"fmt"
	"runtime/debug"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
)

// groups are the versions that are served, with the kinds that their resources
// have.
var groups = map[schema.GroupVersion][]runtime.Object{
	corev1.SchemeGroupVersion: {
		&corev1.ConfigMap{}, &corev1.ConfigMapList{}, &corev1.Pod{}, &corev1.PodList{}, &corev1.Node{}, &corev1.NodeList{},
		&corev1.Namespace{}, &corev1.NamespaceList{}, &corev1.Binding{},
	},
	coordinationv1.SchemeGroupVersion: {&coordinationv1.Lease{}, &coordinationv1.LeaseList{}},
}

// newScheme makes the scheme of what is served. The Go types of the wire are also
// those inside: upstream's own server converts between two.
func newScheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	for gv, kinds := range groups {
		s.AddKnownTypes(gv, kinds...)
		s.AddKnownTypes(schema.GroupVersion{Group: gv.Group, Version: runtime.APIVersionInternal}, kinds...)
		metav1.AddToGroupVersion(s, gv)
		if err := s.SetVersionPriority(gv); err != nil {
			return nil, fmt.Errorf("order versions of %s: %w", gv, err)
		}
	}
	s.AddUnversionedTypes(schema.GroupVersion{Version: "v1"}, &metav1.Status{}, &metav1.APIVersions{}, &metav1.APIGroupList{}, &metav1.APIGroup{}, &metav1.APIResourceList{})
	selectable := func(label, value string) (string, string, error) {
		switch label {
		case "metadata.name", "metadata.namespace", nodeNameField, "status.phase":
			return label, value, nil
		}
		return "", "", fmt.Errorf("%q is no field that selects", label)
	}
	return s, s.AddFieldLabelConversionFunc(corev1.SchemeGroupVersion.WithKind("Pod"), selectable)
}

// storageCodec writes protobuf to the store.
func storageCodec(codecs serializer.CodecFactory) (runtime.Codec, runtime.GroupVersioner, error) {
	info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	if !ok {
		return nil, nil, fmt.Errorf("there is no codec of %s", runtime.ContentTypeProtobuf)
	}
	var outside, inside schema.GroupVersions
	for gv := range groups {
		outside = append(outside, gv)
		inside = append(inside, schema.GroupVersion{Group: gv.Group, Version: runtime.APIVersionInternal})
	}
	return codecs.CodecForVersions(info.Serializer, codecs.UniversalDeserializer(), outside, inside), outside, nil
}

// kubernetesVersion is that of the library.
func kubernetesVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == "k8s.io/apiserver" {
				return m.Version
			}
		}
	}
	return "of unknown version"
}
