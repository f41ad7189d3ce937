package wire

import (
	"bytes"
	"cmp"
	goencoding "encoding"
	"encoding/binary"
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kemudi/kemudi/internal/layout"
)

// specialPlan returns the plan of a type with an encoding of its own, or nil.
func specialPlan(t reflect.Type) plan {
	switch t {
	case reflect.TypeFor[metav1.Time]():
		return timePlan
	case reflect.TypeFor[metav1.MicroTime]():
		return microTimePlan
	case reflect.TypeFor[resource.Quantity]():
		return quantityPlan
	case reflect.TypeFor[intstr.IntOrString]():
		return intOrStringPlan
	case reflect.TypeFor[metav1.FieldsV1]():
		return fieldsPlan
	case reflect.TypeFor[unstructured.Unstructured]():
		return func(e *encoding, p layout.Ptr) {
			e.any(layout.At[unstructured.Unstructured](p).Object)
		}
	case reflect.TypeFor[any]():
		return func(e *encoding, p layout.Ptr) { e.any(*layout.At[any](p)) }
	}
	ptr := reflect.PointerTo(t)
	if ptr.Implements(reflect.TypeFor[Appender]()) {
		return func(e *encoding, p layout.Ptr) {
			var err error
			if e.buf, err = p.Value(t).Addr().Interface().(Appender).AppendJSON(e.buf); err != nil && e.err == nil {
				e.err = err
			}
		}
	}
	if ptr.Implements(reflect.TypeFor[json.Marshaler]()) || ptr.Implements(reflect.TypeFor[goencoding.TextMarshaler]()) {
		return libraryPlan(t)
	}
	return nil
}

func timePlan(e *encoding, p layout.Ptr) {
	t := layout.At[metav1.Time](p)
	if t.IsZero() {
		e.buf = append(e.buf, "null"...)
		return
	}
	e.buf = append(e.buf, '"')
	e.buf = t.UTC().AppendFormat(e.buf, time.RFC3339)
	e.buf = append(e.buf, '"')
}

func microTimePlan(e *encoding, p layout.Ptr) {
	t := layout.At[metav1.MicroTime](p)
	if t.IsZero() {
		e.buf = append(e.buf, "null"...)
		return
	}
	e.buf = append(e.buf, '"')
	e.buf = t.UTC().AppendFormat(e.buf, metav1.RFC3339Micro)
	e.buf = append(e.buf, '"')
}

func quantityPlan(e *encoding, p layout.Ptr) { appendQuantity(e, layout.At[resource.Quantity](p)) }

// madeFrom is where a Quantity keeps the text that it was made from, if that was
// in canonical form or, as 1.250, 1e0 and +1 are, taken for it: then the library
// writes it. Asking for it by String would make it where there is none.
var madeFrom, isKept = layout.Unexported[resource.Quantity, string]("s")

func appendQuantity(e *encoding, q *resource.Quantity) {
	if !isKept {
		c := *q // so that q stays where it is
		e.byLibrary(&c)
		return
	}
	e.buf = append(e.buf, '"')
	if text := *layout.At[string](layout.PtrOf(q).Field(madeFrom)); text != "" {
		e.buf = append(append(e.buf, text...), '"')
		return
	}
	if n := cap(e.buf) - len(e.buf); n < quantityRoom {
		e.buf = slices.Grow(e.buf, quantityRoom)
	}
	// The number is written where it belongs, unless it is longer than any sensible one.
	number, suffix := q.CanonicalizeBytes(e.buf[len(e.buf):len(e.buf):cap(e.buf)])
	e.buf = append(e.buf, number...)
	e.buf = append(e.buf, suffix...)
	e.buf = append(e.buf, '"')
}

const quantityRoom = 32

func intOrStringPlan(e *encoding, p layout.Ptr) {
	v := layout.At[intstr.IntOrString](p)
	switch v.Type {
	case intstr.Int:
		e.buf = strconv.AppendInt(e.buf, int64(v.IntVal), 10)
	case intstr.String:
		e.buf = AppendString(e.buf, v.StrVal)
	default:
		e.byLibrary(v)
	}
}

// fieldsPlan copies the set of managed fields, which is JSON already. What our
// own code wrote needs neither compacting nor escaping; anything else gets both.
func fieldsPlan(e *encoding, p layout.Ptr) {
	raw := layout.At[metav1.FieldsV1](p).GetRawBytes()
	if len(raw) > 0 && raw[0] == '{' && isCompact(raw) {
		e.buf = append(e.buf, raw...)
		return
	}
	e.byLibrary(layout.At[metav1.FieldsV1](p))
}

// isCompact reports that encoding/json would copy JSON as it is: no white space
// between tokens (or anything that might be), no characters that it escapes.
func isCompact(b []byte) bool {
	for len(b) >= 8 {
		v := binary.LittleEndian.Uint64(b)
		if v&highs != 0 || below(v, ' '+1)|has(v, '<')|has(v, '>')|has(v, '&') != 0 {
			return false
		}
		b = b[8:]
	}
	for _, c := range b {
		if c <= ' ' || c == '<' || c == '>' || c == '&' || c >= 0x80 {
			return false
		}
	}
	return true
}

// libraryPlan leaves a type to encoding/json.
func libraryPlan(t reflect.Type) plan {
	return func(e *encoding, p layout.Ptr) { e.byLibrary(p.Value(t).Addr().Interface()) }
}

func (e *encoding) byLibrary(v any) {
	b, err := json.Marshal(v)
	if err != nil {
		e.err = cmp.Or(e.err, err)
		return
	}
	e.buf = append(e.buf, b...)
}

// any appends a value of a decoded JSON document.
func (e *encoding) any(v any) {
	switch v := v.(type) {
	case nil:
		e.buf = append(e.buf, "null"...)
	case string:
		e.buf = AppendString(e.buf, v)
	case bool:
		e.buf = strconv.AppendBool(e.buf, v)
	case int64:
		e.buf = strconv.AppendInt(e.buf, v, 10)
	case []any:
		if v == nil {
			e.buf = append(e.buf, "null"...)
			return
		}
		e.buf = append(e.buf, '[')
		for i := range v {
			if i > 0 {
				e.buf = append(e.buf, ',')
			}
			e.any(v[i])
		}
		e.buf = append(e.buf, ']')
	case map[string]any:
		appendMap(e, v, (*encoding).any)
	default:
		e.byLibrary(v)
	}
}

// mapPlan handles maps with string keys; those whose values are common are
// read as what they are in memory, without reflection.
func mapPlan(t reflect.Type) plan {
	if t.Key().Kind() != reflect.String || reflect.PointerTo(t.Key()).Implements(reflect.TypeFor[goencoding.TextMarshaler]()) {
		return libraryPlan(t)
	}
	switch elem := t.Elem(); {
	case elem == reflect.TypeFor[string]():
		return typedMapPlan(func(e *encoding, s string) { e.buf = AppendString(e.buf, s) })
	case elem == reflect.TypeFor[[]byte]():
		return typedMapPlan((*encoding).base64)
	case elem == reflect.TypeFor[resource.Quantity]():
		return typedMapPlan(func(e *encoding, q resource.Quantity) { appendQuantity(e, &q) })
	}
	elem := planOf(t.Elem())
	return func(e *encoding, p layout.Ptr) {
		m := p.Value(t)
		if m.IsNil() {
			e.buf = append(e.buf, "null"...)
			return
		}
		values := make(map[string]layout.Ptr, m.Len())
		for it := m.MapRange(); it.Next(); {
			v := layout.New(t.Elem())
			v.Value(t.Elem()).Set(it.Value())
			values[it.Key().String()] = v
		}
		appendMap(e, values, func(e *encoding, v layout.Ptr) { elem(e, v) })
	}
}

// typedMapPlan reads a map whose keys are of string kind as one with keys of
// type string: both have the same layout and hash function.
func typedMapPlan[V any](value func(*encoding, V)) plan {
	return func(e *encoding, p layout.Ptr) { appendMap(e, *layout.At[map[string]V](p), value) }
}

// keyLists lends room to sort keys in.
var keyLists = sync.Pool{New: func() any { return new([]string) }}

func appendMap[V any](e *encoding, m map[string]V, value func(*encoding, V)) {
	if m == nil {
		e.buf = append(e.buf, "null"...)
		return
	}
	list := keyLists.Get().(*[]string)
	keys := (*list)[:0]
	for k := range m {
		keys = append(keys, k)
	}
	if len(keys) > 1 {
		slices.Sort(keys)
	}
	e.buf = append(e.buf, '{')
	for i, k := range keys {
		if i > 0 {
			e.buf = append(e.buf, ',')
		}
		e.buf = AppendString(e.buf, k)
		e.buf = append(e.buf, ':')
		value(e, m[k])
	}
	e.buf = append(e.buf, '}')
	clear(keys)
	*list = keys
	keyLists.Put(list)
}

// Compact removes white space between the tokens of src and escapes it as
// encoding/json does.
func Compact(dst, src []byte) ([]byte, error) {
	var out bytes.Buffer
	if err := json.Compact(&out, src); err != nil {
		return nil, err
	}
	return append(dst, out.Bytes()...), nil
}
