package apiserver

import (
	"maps"
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kemudi/kemudi/internal/resource"
)

// shallow copies an object so far that its metadata's own fields can be changed:
// what they and the other fields refer to stays shared.
func shallow(obj resource.Object) resource.Object {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		content := maps.Clone(u.Object)
		if metadata, ok := content["metadata"].(map[string]any); ok {
			content["metadata"] = maps.Clone(metadata)
		}
		return &unstructured.Unstructured{Object: content}
	}
	v := reflect.ValueOf(obj).Elem()
	out := reflect.New(v.Type())
	out.Elem().Set(v)
	return out.Interface().(resource.Object)
}
