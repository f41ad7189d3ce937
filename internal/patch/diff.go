package patch

import (
	"errors"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/kemudi/kemudi/internal/layout"
)

// side is one of the two values that are compared: absent, null (present
// without a value), or there.
type side struct {
	p   layout.Ptr // the value, behind pointers; nowhere: null
	has bool
}

// differ compares two values of a plan and writes down which fields the second
// one set (added or changed) and which it removed, as the library's Compare
// finds them.
type differ struct {
	set, removed trie
	err          error
}

// root compares two objects, but for the member skip of the outermost struct.
func (d *differ) root(n *node, old, new layout.Ptr, skip string) {
	for i := range n.fields {
		f := &n.fields[i]
		o, w := f.side(old), f.side(new)
		if f.name == skip || !o.has && !w.has {
			continue
		}
		d.push(level{label: f.label})
		d.compare(f.node, o, w)
		d.pop()
	}
}

// errOdd says that a value has a form that is left to the library: list items
// without keys, or with the same ones.
var errOdd = errors.New("list items cannot be told apart")

func (d *differ) push(l level) { d.set.push(l); d.removed.push(l) }
func (d *differ) pop()         { d.set.pop(); d.removed.pop() }

// leaf notes a difference at the current path.
func (d *differ) leaf(n *node, old, new side) {
	switch {
	case !old.has:
		d.set.mark()
	case !new.has:
		d.removed.mark()
	case old.p.IsNil() || new.p.IsNil():
		if old.p != new.p {
			d.set.mark()
		}
	case old.p != new.p && !n.equal(old.p, new.p):
		d.set.mark()
	}
}

// compare looks at the value at the current path.
func (d *differ) compare(n *node, old, new side) {
	if old.has && new.has && old.p == new.p {
		return
	}
	if n.shape == leafShape || n.isEmpty(old) && n.isEmpty(new) {
		d.leaf(n, old, new)
		return
	}
	if !old.has {
		d.set.mark()
	} else if !new.has {
		d.removed.mark()
	}
	switch n.shape {
	case structOf:
		d.structs(n, old.p, new.p)
	case mapOf:
		d.maps(n, old.p, new.p)
	default:
		d.lists(n, old.p, new.p)
	}
}

func (d *differ) structs(n *node, old, new layout.Ptr) {
	d.root(n, old, new, "")
}

// side is the field's value in the struct at p (nowhere: there is no struct).
func (f *fieldNode) side(p layout.Ptr) side {
	if p.IsNil() {
		return side{}
	}
	q := p.Field(f.offset)
	if f.omit != nil && f.omit(q) {
		return side{}
	}
	if f.ptr {
		return side{q.Elem(), true}
	}
	return side{q, true}
}

// isEmpty reports that a value is absent, null or without any content.
func (n *node) isEmpty(s side) bool {
	if s.p.IsNil() {
		return true
	}
	switch n.shape {
	case structOf:
		for i := range n.fields {
			if n.fields[i].side(s.p).has {
				return false
			}
		}
		return !n.full
	case mapOf:
		return s.p.Elem().IsNil() || s.p.Value(n.typ).Len() == 0
	case setOf, keyedSetOf:
		_, items := s.p.Slice()
		return items == 0
	}
	return false
}

func (d *differ) maps(n *node, old, new layout.Ptr) {
	if n.elem.typ.Kind() == reflect.String && n.elem.shape == leafShape {
		d.texts(textsAt(old), textsAt(new))
		return
	}
	o, w := mapAt(n, old), mapAt(n, new)
	keys := make([]string, 0, max(len(o), len(w)))
	for k := range w {
		keys = append(keys, k)
	}
	for k := range o {
		if _, ok := w[k]; !ok {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	for _, k := range keys {
		d.push(level{key: k})
		d.compare(n.elem, o[k], w[k])
		d.pop()
	}
}

// texts compares maps of strings: labels, annotations, data.
func (d *differ) texts(old, new map[string]string) {
	keys := make([]string, 0, len(new))
	for k, v := range new {
		if was, ok := old[k]; !ok || was != v {
			keys = append(keys, k)
		}
	}
	for k := range old {
		if _, ok := new[k]; !ok {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	for _, k := range keys {
		t := &d.set
		if _, ok := new[k]; !ok {
			t = &d.removed
		}
		t.push(level{key: k})
		t.mark()
		t.pop()
	}
}

// textsAt reads a map whose keys and values are of string kinds: all such maps
// have the same layout.
func textsAt(p layout.Ptr) map[string]string {
	if p.IsNil() {
		return nil
	}
	return *layout.At[map[string]string](p)
}

// mapAt reads a map of any type.
func mapAt(n *node, p layout.Ptr) map[string]side {
	if p.IsNil() || p.Elem().IsNil() {
		return nil
	}
	m := p.Value(n.typ)
	out := make(map[string]side, m.Len())
	for it := m.MapRange(); it.Next(); {
		q := layout.New(n.typ.Elem())
		q.Value(n.typ.Elem()).Set(it.Value())
		if n.ptrs {
			q = q.Elem()
		}
		out[it.Key().String()] = side{q, true}
	}
	return out
}

// item is one item of a list that is owned item by item.
type item struct {
	n    *node // of the list
	keys []any // what tells it apart, in the order of the key fields; nil: the key is absent
	at   layout.Ptr
}

func (d *differ) lists(n *node, old, new layout.Ptr) {
	if !old.IsNil() && !new.IsNil() {
		first, size := old.Slice()
		if other, n := new.Slice(); other == first && n == size {
			return // one array: nothing in it differs
		}
	}
	o, w := d.items(n, old), d.items(n, new)
	if d.err != nil {
		return
	}
	for len(o) > 0 || len(w) > 0 {
		var a, b side
		var which *item
		c := orderOf(o, w)
		if c <= 0 {
			which, a, o = &o[0], side{o[0].at, true}, o[1:]
		}
		if c >= 0 {
			which, b, w = &w[0], side{w[0].at, true}, w[1:]
		}
		d.push(level{item: which})
		d.compare(n.elem, a, b)
		d.pop()
	}
}

// orderOf says whose first item comes first.
func orderOf(o, w []item) int {
	switch {
	case len(o) == 0:
		return 1
	case len(w) == 0:
		return -1
	}
	return compareItems(&o[0], &w[0])
}

// items lists a list's items in the library's order.
func (d *differ) items(n *node, p layout.Ptr) []item {
	if p.IsNil() {
		return nil
	}
	first, size := p.Slice()
	list := make([]item, 0, size)
	for i := range size {
		at := first.Index(i, n.size)
		if n.ptrs {
			at = at.Elem()
		}
		list = append(list, item{n: n, at: at})
		if at.IsNil() || !list[i].identify() {
			d.err = errOdd
			return nil
		}
	}
	slices.SortFunc(list, func(a, b item) int { return compareItems(&a, &b) })
	for i := 1; i < len(list); i++ {
		if compareItems(&list[i-1], &list[i]) == 0 {
			d.err = errOdd
			return nil
		}
	}
	return list
}

// identify finds out what tells the item apart; false: nothing does.
func (it *item) identify() bool {
	n := it.n
	if n.shape == setOf {
		v, ok := scalar(n.elem.typ, it.at)
		it.keys = []any{v}
		return ok
	}
	it.keys = make([]any, len(n.keys))
	some := false
	for i := range n.keys {
		k := &n.keys[i]
		v := k.preset
		if s := k.side(it.at); s.has {
			var ok bool
			if s.p.IsNil() {
				return false
			}
			if v, ok = scalar(k.node.typ, s.p); !ok {
				return false
			}
		}
		it.keys[i] = v
		some = some || v != nil
	}
	return some
}

// label is the item's path element as the name of a JSON member.
func (it *item) label() string {
	if it.n.shape == setOf {
		return label(string(appendScalar([]byte("v:"), it.keys[0])))
	}
	text := append(make([]byte, 0, 64), "k:{"...)
	for i, v := range it.keys {
		if v == nil {
			continue
		}
		if len(text) > len("k:{") {
			text = append(text, ',')
		}
		text = append(appendText(text, it.n.keys[i].name), ':')
		text = appendScalar(text, v)
	}
	return label(string(append(text, '}')))
}

// scalar reads a key's value: a string, an int64 or a bool.
func scalar(t reflect.Type, p layout.Ptr) (any, bool) {
	switch t.Kind() {
	case reflect.String:
		return *layout.At[string](p), true
	case reflect.Int32:
		return int64(*layout.At[int32](p)), true
	case reflect.Int64, reflect.Int:
		return *layout.At[int64](p), true
	case reflect.Bool:
		return *layout.At[bool](p), true
	}
	return nil, false
}

func appendScalar(dst []byte, v any) []byte {
	switch v := v.(type) {
	case string:
		return appendText(dst, v)
	case int64:
		return strconv.AppendInt(dst, v, 10)
	case bool:
		return strconv.AppendBool(dst, v)
	}
	return append(dst, "null"...)
}

// compareItems orders items as the library does: by the names of the keys they
// have, then by their values.
func compareItems(a, b *item) int {
	for i := range a.keys {
		x, y := a.keys[i], b.keys[i]
		switch {
		case x == nil && y == nil:
			continue
		case x == nil:
			return compareMissing(a.keys[i:])
		case y == nil:
			return -compareMissing(b.keys[i:])
		}
		if c := compareScalars(x, y); c != 0 {
			return c
		}
	}
	return 0
}

// compareMissing is how an item without a key compares to one that has it:
// shorter comes first, but another key in its place has a larger name.
func compareMissing(rest []any) int {
	for _, v := range rest {
		if v != nil {
			return 1
		}
	}
	return -1
}

func compareScalars(x, y any) int {
	switch a := x.(type) {
	case string:
		if b, ok := y.(string); ok {
			return strings.Compare(a, b)
		}
		return 1
	case int64:
		if b, ok := y.(int64); ok {
			switch {
			case a < b:
				return -1
			case a > b:
				return 1
			}
			return 0
		}
		return -1
	case bool:
		if b, ok := y.(bool); ok && a != b {
			if a {
				return 1
			}
			return -1
		}
	}
	return 0
}
