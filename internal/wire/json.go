package wire

import (
	"encoding/base64"
	"fmt"
	"reflect"
	"strconv"
	"sync"

	"github.com/kemudi/kemudi/internal/layout"
)

// AppendJSON appends the JSON form of v, which must be a non-nil pointer, to
// dst. The result equals that of encoding/json.Marshal.
func AppendJSON(dst []byte, v any) ([]byte, error) {
	t := reflect.TypeOf(v)
	if t == nil || t.Kind() != reflect.Pointer {
		return dst, fmt.Errorf("encode %T as JSON: not a pointer", v)
	}
	p := layout.PtrOf(v)
	if p.IsNil() {
		return append(dst, "null"...), nil
	}
	e := &encoding{buf: dst}
	if layout.Library {
		e.byLibrary(v)
	} else {
		planOf(t.Elem())(e, p)
	}
	if e.err != nil {
		return dst, fmt.Errorf("encode %T as JSON: %w", v, e.err)
	}
	return e.buf, nil
}

// encoding is the state of one AppendJSON.
type encoding struct {
	buf []byte
	err error // the first one
}

// plan appends the value of the plan's type at p. p is somewhere.
type plan func(e *encoding, p layout.Ptr)

// plans holds the plan of each type that was met: a cache of pure functions.
var plans sync.Map // reflect.Type to plan

// planOf returns the plan of t. A type that contains itself meets a stand-in
// that looks the finished plan up when it is used.
func planOf(t reflect.Type) plan {
	if p, ok := plans.Load(t); ok {
		return p.(plan)
	}
	var once sync.Once
	var final plan
	later := plan(func(e *encoding, p layout.Ptr) {
		once.Do(func() { final = makePlan(t) })
		final(e, p)
	})
	if p, loaded := plans.LoadOrStore(t, later); loaded {
		return p.(plan)
	}
	made := makePlan(t)
	plans.Store(t, made)
	return made
}

func makePlan(t reflect.Type) plan {
	if p := specialPlan(t); p != nil {
		return p
	}
	switch t.Kind() {
	case reflect.Bool:
		return func(e *encoding, p layout.Ptr) { e.buf = strconv.AppendBool(e.buf, *layout.At[bool](p)) }
	case reflect.String:
		return func(e *encoding, p layout.Ptr) { e.buf = AppendString(e.buf, *layout.At[string](p)) }
	case reflect.Int, reflect.Int64:
		return func(e *encoding, p layout.Ptr) { e.buf = strconv.AppendInt(e.buf, *layout.At[int64](p), 10) }
	case reflect.Int32:
		return func(e *encoding, p layout.Ptr) { e.buf = strconv.AppendInt(e.buf, int64(*layout.At[int32](p)), 10) }
	case reflect.Struct:
		return structPlan(t)
	case reflect.Pointer:
		return pointerPlan(t)
	case reflect.Slice:
		return slicePlan(t)
	case reflect.Map:
		return mapPlan(t)
	}
	return libraryPlan(t)
}

func pointerPlan(t reflect.Type) plan {
	elem := planOf(t.Elem())
	return func(e *encoding, p layout.Ptr) {
		if q := p.Elem(); !q.IsNil() {
			elem(e, q)
			return
		}
		e.buf = append(e.buf, "null"...)
	}
}

func slicePlan(t reflect.Type) plan {
	if t.Elem().Kind() == reflect.Uint8 {
		if t.Elem() != reflect.TypeFor[byte]() {
			return libraryPlan(t)
		}
		return bytesPlan
	}
	elem, size := planOf(t.Elem()), t.Elem().Size()
	return func(e *encoding, p layout.Ptr) {
		first, n := p.Slice()
		if first.IsNil() {
			e.buf = append(e.buf, "null"...)
			return
		}
		e.buf = append(e.buf, '[')
		for i := range n {
			if i > 0 {
				e.buf = append(e.buf, ',')
			}
			elem(e, first.Index(i, size))
		}
		e.buf = append(e.buf, ']')
	}
}

func bytesPlan(e *encoding, p layout.Ptr) { e.base64(*layout.At[[]byte](p)) }

func (e *encoding) base64(b []byte) {
	if b == nil {
		e.buf = append(e.buf, "null"...)
		return
	}
	e.buf = append(e.buf, '"')
	e.buf = base64.StdEncoding.AppendEncode(e.buf, b)
	e.buf = append(e.buf, '"')
}
