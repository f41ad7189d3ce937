package served

import (
	"errors"

	"github.com/kemudi/kemudi/internal/apiserver/encoded"
	"github.com/kemudi/kemudi/internal/apiserver/request"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/wire"
)

// ErrNoProto says that a kind cannot be sent as protobuf.
var ErrNoProto = errors.New("object does not implement the protobuf marshalling interface and cannot be encoded to a protobuf message")

// Forms are the encodings of objects at a version. JSON is kept without kind and
// apiVersion, protobuf without its envelope: both are put around the bytes when
// they are sent.
type Forms struct{ JSON, Proto *encoded.Form }

func newForms(v *Resource) Forms {
	current := func(it *cache.Item) bool {
		if v.Cache == nil {
			return false
		}
		now := v.Cache.Get(it.Key)
		return now == it || v.live() != nil && now != nil && now.Rev == it.Rev
	}
	if v.Def.Computed {
		current = nil
	}
	f := Forms{JSON: &encoded.Form{Current: current, Append: v.appendJSON}, Proto: &encoded.Form{Current: current, Append: v.appendProto}}
	if v.Version == nil {
		f.Proto.Size = protoSize
	}
	return f
}

// In is the form of a media type.
func (f Forms) In(m request.Media) *encoded.Form {
	if m == request.MediaProto {
		return f.Proto
	}
	return f.JSON
}

// appendJSON appends an object of the storage version as this version has it.
func (v *Resource) appendJSON(dst []byte, obj resource.Object) ([]byte, error) {
	out, err := v.FromStorage(obj)
	if err != nil {
		return dst, err
	}
	return wire.AppendJSON(dst, out)
}

func (v *Resource) appendProto(dst []byte, obj resource.Object) ([]byte, error) {
	out, err := v.FromStorage(obj)
	if err != nil {
		return dst, err
	}
	p, ok := out.(wire.Proto)
	if !ok {
		return dst, ErrNoProto
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
