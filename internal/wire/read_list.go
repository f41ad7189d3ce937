package wire

import (
	goencoding "encoding"
	"encoding/base64"
	"reflect"
	"sync"

	"github.com/kemudi/kemudi/internal/layout"
)

// draft is where the items of a list are read to before it is known how many they
// are: the list itself gets an array of just their number, since it may live long.
type draft struct {
	items reflect.Value // a slice as long as there is room; zero values
	first layout.Ptr
}

// draftItems is for how many items there is room at first.
const draftItems = 8

// grow makes room for n items of a list of type t.
func (w *draft) grow(t reflect.Type, n int) {
	larger := reflect.MakeSlice(t, n, n)
	if w.items.IsValid() {
		reflect.Copy(larger, w.items)
	}
	w.items, w.first = larger, layout.PtrTo(larger)
}

func sliceReader(t reflect.Type) reader {
	if t.Elem().Kind() == reflect.Uint8 {
		if t.Elem() != reflect.TypeFor[byte]() {
			return notRead
		}
		return readBytes
	}
	elem, size := readerOf(t.Elem()), t.Elem().Size()
	drafts := &sync.Pool{New: func() any {
		w := &draft{}
		w.grow(t, draftItems)
		return w
	}}
	return func(d *document, p layout.Ptr) bool {
		if d.null() {
			return true
		}
		w, n := drafts.Get().(*draft), 0
		ok := d.array(func() bool {
			if n == w.items.Len() {
				w.grow(t, 2*n)
			}
			n++
			return elem(d, w.first.Index(n-1, size))
		})
		read := w.items.Slice(0, n)
		if ok {
			list := reflect.MakeSlice(t, n, n)
			reflect.Copy(list, read)
			p.Value(t).Set(list)
		}
		read.Clear()
		drafts.Put(w)
		return ok
	}
}

// readBytes reads what JSON has in base64.
func readBytes(d *document, p layout.Ptr) bool {
	if d.null() {
		return true
	}
	text, ok := d.string()
	if !ok {
		return false
	}
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return false
	}
	*layout.At[[]byte](p) = b
	return true
}

func mapReader(t reflect.Type) reader {
	switch key := t.Key(); {
	case key.Kind() != reflect.String, reflect.PointerTo(key).Implements(reflect.TypeFor[goencoding.TextUnmarshaler]()):
		return notRead
	case t.Elem().Kind() == reflect.String && specialReader(t.Elem()) == nil:
		return readTexts
	}
	elem := readerOf(t.Elem())
	return func(d *document, p layout.Ptr) bool {
		if d.null() {
			return true
		}
		m := reflect.MakeMap(t)
		p.Value(t).Set(m)
		return d.object(func(name []byte) bool {
			key := reflect.New(t.Key()).Elem()
			key.SetString(string(name))
			if m.MapIndex(key).IsValid() {
				return false
			}
			q := layout.New(t.Elem())
			if !elem(d, q) {
				return false
			}
			m.SetMapIndex(key, q.Value(t.Elem()))
			return true
		})
	}
}

// readTexts reads a map whose keys and values are of string kinds: all such maps
// have the same layout.
func readTexts(d *document, p layout.Ptr) bool {
	if d.null() {
		return true
	}
	m := map[string]string{}
	*layout.At[map[string]string](p) = m
	return d.object(func(name []byte) bool {
		key := string(name)
		if _, there := m[key]; there {
			return false
		}
		if d.null() {
			m[key] = ""
			return true
		}
		value, ok := d.string()
		m[key] = value
		return ok
	})
}
