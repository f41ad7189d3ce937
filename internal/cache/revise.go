package cache

import (
	"maps"
	"reflect"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kemudi/kemudi/internal/resource"
)

// AtRevision returns the object with rev as its resourceVersion. obj itself
// stays as it is; what its fields refer to is shared.
func AtRevision(obj resource.Object, rev int64) resource.Object {
	obj = Shallow(obj)
	obj.SetResourceVersion(strconv.FormatInt(rev, 10))
	return obj
}

// Shallow copies an object so far that its metadata's own fields can be changed:
// what they and the other fields refer to stays shared.
func Shallow(obj resource.Object) resource.Object {
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

// gone is the Item as its deletion at rev shows it.
func (it *Item) gone(rev int64) *Item {
	return &Item{Key: it.Key, Rev: rev, Object: AtRevision(it.Object, rev)}
}

// Gone is the change that takes the object away at revision rev.
func Gone(it *Item, rev int64) Change {
	return Change{Item: it.gone(rev), Delete: true}
}
