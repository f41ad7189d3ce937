package apiserver

import (
	"errors"

	"github.com/kemudi/kemudi/internal/apiserver/encoded"
	"github.com/kemudi/kemudi/internal/apiserver/request"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/wire"
)

// errNoProto says that a kind cannot be sent as protobuf.
var errNoProto = errors.New("object does not implement the protobuf marshalling interface and cannot be encoded to a protobuf message")

// forms are the encodings of objects at a version. JSON is kept without kind and
// apiVersion, protobuf without its envelope: both are put around the bytes when
// they are sent.
type forms struct{ json, proto *encoded.Form }

func newForms(v *served) forms {
	current := func(it *cache.Item) bool { return v.cache != nil && v.cache.Get(it.Key) == it }
	f := forms{json: &encoded.Form{Current: current, Append: v.appendJSON}, proto: &encoded.Form{Current: current, Append: v.appendProto}}
	if v.ver == nil {
		f.proto.Size = protoSize
	}
	return f
}

// in is the form of a media type.
func (f forms) in(m request.Media) *encoded.Form {
	if m == request.MediaProto {
		return f.proto
	}
	return f.json
}

// appendJSON appends an object of the storage version as this version has it.
func (v *served) appendJSON(dst []byte, obj resource.Object) ([]byte, error) {
	out, err := v.fromStorage(obj)
	if err != nil {
		return dst, err
	}
	return wire.AppendJSON(dst, out)
}

func (v *served) appendProto(dst []byte, obj resource.Object) ([]byte, error) {
	out, err := v.fromStorage(obj)
	if err != nil {
		return dst, err
	}
	p, ok := out.(wire.Proto)
	if !ok {
		return dst, errNoProto
	}
	return wire.AppendProtoBody(dst, p)
}

// protoSize is the size of an object of the storage version; 0 if it has none.
func protoSize(obj resource.Object) int {
	if p, ok := obj.(wire.Proto); ok {
		return p.Size()
	}
	return 0
}
