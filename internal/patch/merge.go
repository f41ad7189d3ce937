package patch

import (
	"encoding/json"
	"math"
	"reflect"

	kjson "sigs.k8s.io/json"

	"github.com/kemudi/kemudi/internal/layout"
)

// merger puts what a document sets into a Go object, by the rules of
// server-side apply: structs and maps are merged, lists that are owned item by
// item are merged by their keys, everything else is replaced.
type merger struct {
	reordered bool // items of a list have changed places
}

// root merges into an object. Parts of it that no manager can own are not
// looked at.
func (m *merger) root(n *node, p layout.Ptr, doc map[string]any) error {
	for name, v := range doc {
		if name == "apiVersion" || name == "kind" {
			continue
		}
		f := n.field(name)
		if f == nil {
			return errRare // not in the schema
		}
		if name == "metadata" {
			own, ok := v.(map[string]any)
			if !ok {
				return errRare
			}
			v = ownable(own)
		}
		if err := m.field(f, p, v); err != nil {
			return err
		}
	}
	return nil
}

// ownable returns metadata without the parts that no manager has.
func ownable(metadata map[string]any) map[string]any {
	out := make(map[string]any, len(metadata))
	for k, v := range metadata {
		if !unownable[k] {
			out[k] = v
		}
	}
	return out
}

// field finds a field of a struct by its name.
func (n *node) field(name string) *fieldNode {
	lo, hi := 0, len(n.fields)
	for lo < hi {
		mid := (lo + hi) / 2
		if n.fields[mid].name < name {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo < len(n.fields) && n.fields[lo].name == name {
		return &n.fields[lo]
	}
	return nil
}

// field merges into one field of the struct at p.
func (m *merger) field(f *fieldNode, p layout.Ptr, v any) error {
	q := p.Field(f.offset)
	if v == nil && f.null {
		q.Value(f.node.typ).SetZero()
		return nil
	}
	if f.ptr {
		if q.Elem().IsNil() {
			q.SetElem(layout.New(f.node.typ))
		}
		q = q.Elem()
	}
	if err := m.value(f.node, q, v); err != nil {
		return err
	}
	if f.omit != nil && f.omit(p.Field(f.offset)) {
		return errRare // the document sets what a Go object does not show: "" or {}
	}
	return nil
}

func (m *merger) value(n *node, p layout.Ptr, v any) error {
	if v == nil {
		return errRare
	}
	switch n.shape {
	case structOf:
		doc, ok := v.(map[string]any)
		if !ok {
			return errRare
		}
		for name, v := range doc {
			f := n.field(name)
			if f == nil {
				return errRare // not in the schema
			}
			if err := m.field(f, p, v); err != nil {
				return err
			}
		}
		return nil
	case mapOf:
		return m.entries(n, p, v)
	case setOf, keyedSetOf:
		return m.items(n, p, v)
	}
	return setLeaf(n, p, v)
}

func (m *merger) entries(n *node, p layout.Ptr, v any) error {
	doc, ok := v.(map[string]any)
	if !ok {
		return errRare
	}
	dst := p.Value(n.typ)
	if dst.IsNil() {
		dst.Set(reflect.MakeMapWithSize(n.typ, len(doc)))
	}
	for k, v := range doc {
		key := reflect.ValueOf(k).Convert(n.typ.Key())
		q := layout.New(n.typ.Elem())
		elem := q.Value(n.typ.Elem())
		if old := dst.MapIndex(key); old.IsValid() {
			elem.Set(old)
		}
		if n.ptrs {
			if q.Elem().IsNil() {
				q.SetElem(layout.New(n.elem.typ))
			}
			q = q.Elem()
		}
		if err := m.value(n.elem, q, v); err != nil {
			return err
		}
		dst.SetMapIndex(key, elem)
	}
	return nil
}

// items merges a list. The order of the result is the library's: items of the
// document in its order, the others where they were as far as that goes.
func (m *merger) items(n *node, p layout.Ptr, v any) error {
	doc, ok := v.([]any)
	if !ok || n.ptrs {
		return errRare
	}
	old, err := identities(n, p)
	if err != nil {
		return err
	}
	mine := make([]item, len(doc))
	for i, v := range doc {
		mine[i].n = n
		if !mine[i].identifyDoc(v) || contains(mine[:i], &mine[i]) {
			return errOdd
		}
	}
	dst := p.Value(n.typ)
	out := reflect.MakeSlice(n.typ, 0, len(old)+len(mine))
	for at, from := range mergeOrder(old, mine) {
		elem := reflect.New(n.typ.Elem()).Elem()
		if from.old >= 0 {
			elem = dst.Index(from.old)
			m.reordered = m.reordered || from.old != at
		}
		out = reflect.Append(out, elem)
		if from.mine >= 0 {
			if err := m.value(n.elem, layout.PtrOf(out.Index(at).Addr().Interface()), doc[from.mine]); err != nil {
				return err
			}
		}
	}
	if out.Len() > 0 || dst.IsNil() {
		dst.Set(out)
	}
	return nil
}

// identities tells the items of a list apart, in the order they are in.
func identities(n *node, p layout.Ptr) ([]item, error) {
	first, size := p.Slice()
	list := make([]item, size)
	for i := range list {
		list[i] = item{n: n, at: first.Index(i, n.size)}
		if !list[i].identify() {
			return nil, errOdd
		}
	}
	return list, nil
}

// source says where an item of a merged list comes from; -1: not from there.
type source struct{ old, mine int }

// mergeOrder interleaves two lists of items. Items of both lists keep the order of
// mine. An item of one list alone stands behind its predecessor in that list.
func mergeOrder(old, mine []item) []source {
	inOld, inMine := match(old, mine)
	var shared []int // indices of mine that are in old, in mine's order
	for i := range mine {
		if inOld[i] >= 0 {
			shared = append(shared, i)
		}
	}
	next := 0 // shared[next] is the shared item that comes next
	done := make([]bool, len(mine))
	var out []source
	for o, w := 0, 0; o < len(old) || w < len(mine); {
		if o < len(old) && w < len(mine) {
			if inMine[o] == w {
				done[w] = true
				out = append(out, source{o, w})
				o, w, next = o+1, w+1, next+1
				continue
			}
			if inMine[o] >= 0 && next < len(shared) && shared[next] != inMine[o] {
				o++ // shared, but it comes later
				continue
			}
		}
		if o < len(old) {
			if inMine[o] < 0 {
				out = append(out, source{o, -1})
				o++
				continue
			}
			if done[inMine[o]] {
				o++
			}
		}
		if w < len(mine) {
			done[w] = true
			out = append(out, source{inOld[w], w})
			if next < len(shared) && shared[next] == w {
				next++
			}
			w++
		}
	}
	return out
}

func contains(list []item, it *item) bool {
	for i := range list {
		if compareItems(&list[i], it) == 0 {
			return true
		}
	}
	return false
}

// match finds for each of mine its index in old and the other way round; -1: none.
func match(old, mine []item) (inOld, inMine []int) {
	inOld, inMine = make([]int, len(mine)), make([]int, len(old))
	for i := range inMine {
		inMine[i] = -1
	}
	for i := range mine {
		inOld[i] = -1
		for j := range old {
			if inMine[j] < 0 && compareItems(&old[j], &mine[i]) == 0 {
				inOld[i], inMine[j] = j, i
				break
			}
		}
	}
	return inOld, inMine
}

// setLeaf replaces a value that is owned as a whole.
func setLeaf(n *node, p layout.Ptr, v any) error {
	if _, custom := p.Value(n.typ).Addr().Interface().(json.Unmarshaler); !custom {
		switch n.typ.Kind() {
		case reflect.String:
			if s, ok := v.(string); ok {
				*layout.At[string](p) = s
				return nil
			}
			return errRare
		case reflect.Bool:
			if b, ok := v.(bool); ok {
				*layout.At[bool](p) = b
				return nil
			}
			return errRare
		case reflect.Int32:
			if i, ok := v.(int64); ok && i >= math.MinInt32 && i <= math.MaxInt32 {
				*layout.At[int32](p) = int32(i)
				return nil
			}
			return errRare
		case reflect.Int64, reflect.Int:
			if i, ok := v.(int64); ok {
				*layout.At[int64](p) = i
				return nil
			}
			return errRare
		}
	}
	doc, err := json.Marshal(v)
	if err != nil {
		return errRare
	}
	fresh := reflect.New(n.typ)
	strict, err := kjson.UnmarshalStrict(doc, fresh.Interface())
	if err != nil || len(strict) > 0 {
		return errRare
	}
	p.Value(n.typ).Set(fresh.Elem())
	return nil
}
