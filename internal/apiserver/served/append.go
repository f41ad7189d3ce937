package served

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kemudi/kemudi/internal/apiserver/refusal"
	"github.com/kemudi/kemudi/internal/apiserver/request"
	"github.com/kemudi/kemudi/internal/wire"
)

// AppendAny appends any API object. YAML is made of JSON when it is sent.
func AppendAny(dst []byte, m request.Media, gvk schema.GroupVersionKind, obj runtime.Object) ([]byte, error) {
	apiVersion := gvk.GroupVersion().String()
	if m == request.MediaProto {
		pb, ok := obj.(wire.Proto)
		if !ok {
			return nil, refusal.NotAcceptable(request.Types[:2])
		}
		return wire.NewProtoType(apiVersion, gvk.Kind).AppendProto(dst, pb)
	}
	if obj.GetObjectKind().GroupVersionKind() == gvk {
		return wire.AppendJSON(dst, obj)
	}
	if k := obj.GetObjectKind(); !k.GroupVersionKind().Empty() {
		obj = obj.DeepCopyObject()
		ClearType(obj)
	}
	b, err := wire.AppendJSON(nil, obj)
	if err != nil {
		return nil, err
	}
	return AppendWithHead(dst, JSONHead(apiVersion, gvk.Kind), b), nil
}

// AppendWithHead puts kind and apiVersion into the JSON of an object.
func AppendWithHead(dst, head, object []byte) []byte {
	dst = append(dst, head...)
	if len(object) > 2 {
		dst = append(dst, ',')
	}
	return append(dst, object[1:]...)
}

// JSONHead is what the JSON of an object of a kind begins with. One that tells of no version has none.
func JSONHead(apiVersion, kind string) []byte {
	head := wire.AppendString([]byte(`{"kind":`), kind)
	if apiVersion == "" {
		return head
	}
	return wire.AppendString(append(head, `,"apiVersion":`...), apiVersion)
}

// ClearType empties the kind and apiVersion of an object, as stored and cached
// objects have them: what they are is known from where they are.
func ClearType(obj runtime.Object) {
	obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
}
