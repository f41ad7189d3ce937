package wire

import (
	"reflect"
	"strconv"
	"sync"

	"github.com/kemudi/kemudi/internal/layout"
)

// readJSON reads a document into the zero value that into points to, if there is
// nothing unusual about either: no unknown or duplicate members, nothing that
// does not fit, no text that is not UTF-8. Otherwise it leaves the value zero,
// and the library reads the document, or finds the words for what is wrong with it.
func readJSON(doc []byte, into any) bool {
	v := reflect.ValueOf(into)
	if layout.Library || v.Kind() != reflect.Pointer || v.IsNil() || !v.Elem().IsZero() {
		return false
	}
	read := readerOf(v.Type().Elem())
	d := document{text: doc}
	d.space()
	if !read(&d, layout.PtrOf(into)) || !d.ended() {
		v.Elem().SetZero()
		return false
	}
	return true
}

// reader reads the next value of a document into the zero value of the reader's
// type at p. It reports false, wherever it has come to, for what is left to the
// library.
type reader func(d *document, p layout.Ptr) bool

// readers holds the reader of each type that was met: a cache of pure functions.
var readers sync.Map // reflect.Type to reader

// readerOf returns the reader of t. A type that contains itself meets a stand-in,
// as in planOf.
func readerOf(t reflect.Type) reader {
	if r, ok := readers.Load(t); ok {
		return r.(reader)
	}
	final := sync.OnceValue(func() reader { return makeReader(t) })
	later := reader(func(d *document, p layout.Ptr) bool { return final()(d, p) })
	if r, loaded := readers.LoadOrStore(t, later); loaded {
		return r.(reader)
	}
	made := makeReader(t)
	readers.Store(t, made)
	return made
}

// notRead is the reader of types that are left to the library.
func notRead(*document, layout.Ptr) bool { return false }

func makeReader(t reflect.Type) reader {
	if r := specialReader(t); r != nil {
		return r
	}
	switch t.Kind() {
	case reflect.Bool:
		return readBool
	case reflect.String:
		return readString
	case reflect.Int, reflect.Int64:
		return func(d *document, p layout.Ptr) bool { return d.null() || d.integer(layout.At[int64](p)) }
	case reflect.Int32:
		return readInt32
	case reflect.Float64:
		return readFloat
	case reflect.Struct:
		return structReader(t)
	case reflect.Pointer:
		return pointerReader(t)
	case reflect.Slice:
		return sliceReader(t)
	case reflect.Map:
		return mapReader(t)
	}
	return notRead
}

func readBool(d *document, p layout.Ptr) bool {
	switch {
	case d.word("true"):
		*layout.At[bool](p) = true
		return true
	case d.word("false"):
		return true
	}
	return d.null()
}

func readString(d *document, p layout.Ptr) (ok bool) {
	if d.null() {
		return true
	}
	*layout.At[string](p), ok = d.string()
	return ok
}

func readInt32(d *document, p layout.Ptr) bool {
	if d.null() {
		return true
	}
	var n int64
	if !d.integer(&n) || int64(int32(n)) != n {
		return false
	}
	*layout.At[int32](p) = int32(n)
	return true
}

func readFloat(d *document, p layout.Ptr) bool {
	if d.null() {
		return true
	}
	text, ok := d.number()
	if !ok {
		return false
	}
	n, err := strconv.ParseFloat(string(text), 64)
	*layout.At[float64](p) = n
	return err == nil
}

func pointerReader(t reflect.Type) reader {
	elem := readerOf(t.Elem())
	return func(d *document, p layout.Ptr) bool {
		if d.null() {
			return true
		}
		q := layout.New(t.Elem())
		p.SetElem(q)
		return elem(d, q)
	}
}

// readMember is one field of a struct's JSON form.
type readMember struct {
	offset uintptr
	at     int // its place in the list, for the note that it was there
	read   reader
}

// membersMost is how many members the note has room for.
const membersMost = 128

func structReader(t reflect.Type) reader {
	fields, err := layout.Fields(t)
	if err != nil || len(fields) > membersMost {
		return notRead
	}
	members := make(map[string]*readMember, len(fields))
	for i, f := range fields {
		m := &readMember{f.Offset, i, readerOf(f.Type)}
		if f.Quoted {
			m.read = notRead
		}
		members[f.Name] = m
	}
	return func(d *document, p layout.Ptr) bool {
		if d.null() {
			return true
		}
		var seen [membersMost / 64]uint64
		return d.object(func(name []byte) bool {
			m := members[string(name)]
			if m == nil || seen[m.at/64]>>(m.at%64)&1 == 1 {
				return false // unknown, or there already
			}
			seen[m.at/64] |= 1 << (m.at % 64)
			return m.read(d, p.Field(m.offset))
		})
	}
}
