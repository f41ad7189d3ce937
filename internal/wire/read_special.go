package wire

import (
	"bytes"
	goencoding "encoding"
	"encoding/json"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kemudi/kemudi/internal/layout"
)

// specialReader returns the reader of a type with a way of its own to be read, or nil.
func specialReader(t reflect.Type) reader {
	switch t {
	case reflect.TypeFor[metav1.Time]():
		return func(d *document, p layout.Ptr) bool { return d.time(time.RFC3339, &layout.At[metav1.Time](p).Time) }
	case reflect.TypeFor[metav1.MicroTime]():
		return func(d *document, p layout.Ptr) bool {
			return d.time(metav1.RFC3339Micro, &layout.At[metav1.MicroTime](p).Time)
		}
	case reflect.TypeFor[resource.Quantity]():
		return readQuantity
	case reflect.TypeFor[intstr.IntOrString]():
		return readIntOrString
	case reflect.TypeFor[map[string]any]():
		return func(d *document, p layout.Ptr) (ok bool) {
			if d.null() {
				return true
			}
			*layout.At[map[string]any](p), ok = d.members()
			return ok
		}
	case reflect.TypeFor[any]():
		return func(d *document, p layout.Ptr) (ok bool) {
			*layout.At[any](p), ok = d.any()
			return ok
		}
	}
	switch ptr := reflect.PointerTo(t); {
	case t.Kind() == reflect.Pointer || t.Kind() == reflect.Interface:
		return nil
	case ptr.Implements(reflect.TypeFor[json.Unmarshaler]()):
		return func(d *document, p layout.Ptr) bool {
			text, ok := d.raw()
			return ok && p.Value(t).Addr().Interface().(json.Unmarshaler).UnmarshalJSON(text) == nil
		}
	case ptr.Implements(reflect.TypeFor[goencoding.TextUnmarshaler]()):
		return notRead
	}
	return nil
}

// time reads a time that is written in a form.
func (d *document) time(form string, into *time.Time) bool {
	if d.null() {
		return true
	}
	text, ok := d.string()
	if !ok {
		return false
	}
	t, err := time.Parse(form, text)
	*into = t.Local()
	return err == nil
}

// readQuantity reads a text, of which the library takes no escapes back, or a number.
func readQuantity(d *document, p layout.Ptr) bool {
	if d.null() {
		return true
	}
	raw, ok := d.raw()
	if !ok || bytes.IndexByte(raw, '\\') >= 0 {
		return false
	}
	q, err := resource.ParseQuantity(strings.TrimSpace(string(bytes.Trim(raw, `"`))))
	*layout.At[resource.Quantity](p) = q
	return err == nil
}

func readIntOrString(d *document, p layout.Ptr) (ok bool) {
	v := layout.At[intstr.IntOrString](p)
	if d.next() == '"' {
		v.Type = intstr.String
		v.StrVal, ok = d.string()
		return ok
	}
	v.Type = intstr.Int
	var n int64
	ok = d.null() || d.integer(&n) && n >= math.MinInt32 && n <= math.MaxInt32
	v.IntVal = int32(n)
	return ok
}

// any reads a value into what stands for it where there is no type: whole numbers
// are int64, if they fit.
func (d *document) any() (v any, ok bool) {
	switch d.next() {
	case '{':
		return d.members()
	case '[':
		list := []any{}
		ok = d.array(func() bool {
			v, ok := d.any()
			list = append(list, v)
			return ok
		})
		return list, ok
	case '"':
		return asAny(d.string())
	case 't':
		return true, d.word("true")
	case 'f':
		return false, d.word("false")
	case 'n':
		return nil, d.null()
	}
	text, ok := d.number()
	if !ok {
		return nil, false
	}
	if bytes.IndexByte(text, '.') < 0 {
		if n, err := strconv.ParseInt(string(text), 10, 64); err == nil {
			return n, true
		}
	}
	f, err := strconv.ParseFloat(string(text), 64)
	return f, err == nil
}

func asAny(text string, ok bool) (any, bool) { return text, ok }

// pair is a member of an object without types.
type pair struct {
	name  string
	value any
}

// members reads an object of values without types. They are gathered first, so that the map is made as large as it gets.
func (d *document) members() (m map[string]any, ok bool) {
	from := len(d.found)
	ok = d.object(func(name []byte) bool {
		key := string(name)
		v, ok := d.any()
		d.found = append(d.found, pair{key, v})
		return ok
	})
	found := d.found[from:]
	m = make(map[string]any, len(found))
	for _, f := range found {
		m[f.name] = f.value
	}
	ok = ok && len(m) == len(found) // or something is said twice
	clear(found)
	d.found = d.found[:from]
	return m, ok
}
