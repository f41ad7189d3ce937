package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Proto is an object that knows its protobuf form, as all built-in kinds do.
type Proto interface {
	Size() int
	MarshalToSizedBuffer(dst []byte) (int, error)
	Unmarshal(src []byte) error
}

// magic starts every protobuf document of Kubernetes.
const magic = "k8s\x00"

// Field tags of the messages written by hand here: number<<3 | wire type.
const (
	tagTypeMeta = 1<<3 | 2 // runtime.Unknown
	tagRaw      = 2<<3 | 2

	tagAPIVersion = 1<<3 | 2 // runtime.TypeMeta
	tagKind       = 2<<3 | 2

	tagListMeta = 1<<3 | 2 // every list
	tagItem     = 2<<3 | 2

	tagEventType   = 1<<3 | 2 // metav1.WatchEvent
	tagEventObject = 2<<3 | 2
	tagRawObject   = 1<<3 | 2 // runtime.RawExtension
)

// unknownTail is the end of runtime.Unknown as generated code writes it: empty
// contentEncoding and contentType.
const unknownTail = "\x1a\x00\x22\x00"

// AppendProtoBody appends the bare message of obj, without an envelope.
func AppendProtoBody(dst []byte, obj Proto) ([]byte, error) {
	return AppendSized(dst, obj, obj.Size())
}

// AppendSized does the same for an object whose size is known.
func AppendSized(dst []byte, obj Proto, size int) ([]byte, error) {
	n := len(dst)
	dst = grow(dst, size)
	if _, err := obj.MarshalToSizedBuffer(dst[n:]); err != nil {
		return dst[:n], fmt.Errorf("encode %T as protobuf: %w", obj, err)
	}
	return dst, nil
}

func grow(dst []byte, n int) []byte {
	if free := cap(dst) - len(dst); free >= n {
		return dst[:len(dst)+n]
	}
	bigger := make([]byte, len(dst)+n, max(len(dst)+n, 2*cap(dst)))
	copy(bigger, dst)
	return bigger
}

// ProtoType is the type of an object as the envelope of its protobuf form has
// it. Its methods put bare messages into envelopes.
type ProtoType struct {
	head []byte // magic and TypeMeta
}

// NewProtoType returns the envelope of objects of a kind.
func NewProtoType(apiVersion, kind string) ProtoType {
	meta := appendField(appendField(nil, tagAPIVersion, apiVersion), tagKind, kind)
	return ProtoType{appendField([]byte(magic), tagTypeMeta, string(meta))}
}

// Size is the size of a bare message of n bytes in its envelope.
func (t ProtoType) Size(n int) int {
	return len(t.head) + fieldSize(n) + len(unknownTail)
}

// AppendHead appends what comes before a bare message of n bytes; AppendTail
// must follow the message.
func (t ProtoType) AppendHead(dst []byte, n int) []byte {
	dst = append(dst, t.head...)
	return binary.AppendUvarint(append(dst, tagRaw), uint64(n))
}

// AppendTail appends what comes after a bare message.
func (t ProtoType) AppendTail(dst []byte) []byte { return append(dst, unknownTail...) }

// Append appends a bare message in its envelope.
func (t ProtoType) Append(dst, body []byte) []byte {
	dst = t.AppendHead(dst, len(body))
	dst = append(dst, body...)
	return t.AppendTail(dst)
}

// AppendProto appends obj in its envelope.
func (t ProtoType) AppendProto(dst []byte, obj Proto) ([]byte, error) {
	dst = t.AppendHead(dst, obj.Size())
	dst, err := AppendProtoBody(dst, obj)
	return t.AppendTail(dst), err
}

// ErrNotProto says that a document does not start as Kubernetes' protobuf does.
var ErrNotProto = errors.New("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")

// IsProto reports whether a document starts as Kubernetes' protobuf does.
func IsProto(data []byte) bool { return len(data) >= len(magic) && string(data[:len(magic)]) == magic }

// OpenProto takes a document out of its envelope. raw shares data's memory.
func OpenProto(data []byte) (meta runtime.TypeMeta, raw []byte, err error) {
	switch {
	case len(data) == 0:
		return meta, nil, errors.New("empty data")
	case !IsProto(data):
		return meta, nil, ErrNotProto
	case len(data) == len(magic):
		return meta, nil, errors.New("empty body")
	}
	var u runtime.Unknown
	if err := u.Unmarshal(data[len(magic):]); err != nil {
		return meta, nil, err
	}
	return u.TypeMeta, u.Raw, nil
}

func appendField(dst []byte, tag byte, value string) []byte {
	dst = binary.AppendUvarint(append(dst, tag), uint64(len(value)))
	return append(dst, value...)
}

// fieldSize is the size of a length-delimited field (with a one-byte tag) that
// holds n bytes.
func fieldSize(n int) int { return 1 + varintSize(uint64(n)) + n }

func varintSize(v uint64) int { return (bits.Len64(v|1) + 6) / 7 }

// AppendListHead appends the start of a list's bare message: all but the items.
func AppendListHead(dst []byte, meta *metav1.ListMeta) ([]byte, error) {
	body, err := meta.Marshal()
	if err != nil {
		return dst, fmt.Errorf("encode list metadata: %w", err)
	}
	return appendField(dst, tagListMeta, string(body)), nil
}

// ListItemSize is the size of an item of n bytes within a list.
func ListItemSize(n int) int { return fieldSize(n) }

// AppendListItemHead appends what comes before an item of n bytes in a list.
func AppendListItemHead(dst []byte, n int) []byte {
	return binary.AppendUvarint(append(dst, tagItem), uint64(n))
}

// AppendWatchHead appends what comes before a bare message of n bytes in a
// frame of a protobuf watch: the frame's length, the event's type and the
// object's envelope. t.AppendTail must follow the message.
func (t ProtoType) AppendWatchHead(dst []byte, event string, n int) []byte {
	raw := t.Size(n)
	object := fieldSize(raw)
	dst = binary.BigEndian.AppendUint32(dst, uint32(fieldSize(len(event))+fieldSize(object)))
	dst = appendField(dst, tagEventType, event)
	dst = binary.AppendUvarint(append(dst, tagEventObject), uint64(object))
	dst = binary.AppendUvarint(append(dst, tagRawObject), uint64(raw))
	return t.AppendHead(dst, n)
}
