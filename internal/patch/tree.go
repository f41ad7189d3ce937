package patch

import (
	"reflect"
	"slices"

	"sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// treeDiffer does for unstructured trees what differ does for Go objects: it compares two of
// them by a schema and writes down which fields the second one set and which it removed.
type treeDiffer struct {
	differ
	schema *schema.Schema
}

// leaf of a tree: what is there, which may be null.
type leaf struct {
	v   any
	has bool
}

// compareTrees returns how two objects differ, but for the member skip and what nobody owns.
func compareTrees(of *typed.TypedValue, old, new map[string]any, skip string) (change, error) {
	d := &treeDiffer{schema: of.Schema()}
	atom, ok := d.schema.Resolve(of.TypeRef())
	if !ok || atom.Map == nil {
		return change{}, errRare
	}
	for _, name := range unitedKeys(old, new) {
		if name == "apiVersion" || name == "kind" || name == skip {
			continue
		}
		d.push(level{key: name})
		o, n := at(old, name), at(new, name)
		if name == "metadata" {
			d.metadata(fieldType(atom.Map, name), o, n)
		} else {
			d.compare(fieldType(atom.Map, name), o, n)
		}
		d.pop()
	}
	return change{string(d.set.json()), string(d.removed.json())}, d.err
}

// metadata compares what of an object's own metadata can be owned.
func (d *treeDiffer) metadata(ref schema.TypeRef, old, new leaf) {
	o, _ := old.v.(map[string]any)
	n, _ := new.v.(map[string]any)
	atom, ok := d.schema.Resolve(ref)
	if !ok || atom.Map == nil {
		d.err = errRare
		return
	}
	for _, name := range unitedKeys(o, n) {
		if unownable[name] {
			continue
		}
		d.push(level{key: name})
		d.compare(fieldType(atom.Map, name), at(o, name), at(n, name))
		d.pop()
	}
}

func at(m map[string]any, name string) leaf {
	v, ok := m[name]
	return leaf{v, ok}
}

func fieldType(m *schema.Map, name string) schema.TypeRef {
	if f, ok := m.FindField(name); ok {
		return f.Type
	}
	return m.ElementType
}

func unitedKeys(a, b map[string]any) []string {
	keys := make([]string, 0, max(len(a), len(b)))
	for k := range b {
		keys = append(keys, k)
	}
	for k := range a {
		if _, ok := b[k]; !ok {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	return keys
}

// compare looks at the value at the current path.
func (d *treeDiffer) compare(ref schema.TypeRef, old, new leaf) {
	if d.err != nil {
		return
	}
	atom, ok := d.schema.Resolve(ref)
	if !ok {
		d.err = errRare // a field that the schema does not know
		return
	}
	o, isMap := old.v.(map[string]any)
	n, isMapToo := new.v.(map[string]any)
	if isMap || isMapToo {
		switch {
		case atom.Map == nil, old.v != nil && !isMap, new.v != nil && !isMapToo:
			d.err = errRare
		case atom.Map.ElementRelationship == schema.Atomic || len(o) == 0 && len(n) == 0:
			d.whole(old, new)
		default:
			d.container(old, new)
			for _, name := range unitedKeys(o, n) {
				d.push(level{key: name})
				d.compare(fieldType(atom.Map, name), at(o, name), at(n, name))
				d.pop()
			}
		}
		return
	}
	a, isList := old.v.([]any)
	b, isListToo := new.v.([]any)
	if !isList && !isListToo {
		d.whole(old, new)
		return
	}
	switch {
	case atom.List == nil, old.v != nil && !isList, new.v != nil && !isListToo:
		d.err = errRare
	case atom.List.ElementRelationship != schema.Associative || len(a) == 0 && len(b) == 0:
		d.whole(old, new)
	default:
		d.container(old, new)
		d.lists(atom.List, a, b)
	}
}

// container notes that a value with fields or items of its own came or went.
func (d *treeDiffer) container(old, new leaf) {
	if !old.has {
		d.set.mark()
	} else if !new.has {
		d.removed.mark()
	}
}

// whole compares what is owned as one.
func (d *treeDiffer) whole(old, new leaf) {
	switch {
	case !old.has:
		d.set.mark()
	case !new.has:
		d.removed.mark()
	case !reflect.DeepEqual(old.v, new.v) && !value.Equals(value.NewValueInterface(old.v), value.NewValueInterface(new.v)):
		d.set.mark()
	}
}

func (d *treeDiffer) lists(l *schema.List, old, new []any) {
	n := &node{shape: setOf}
	if len(l.Keys) > 0 {
		n.shape = keyedSetOf
		for _, name := range slices.Sorted(slices.Values(l.Keys)) {
			k := keyNode{fieldNode: fieldNode{name: name}}
			if atom, ok := d.schema.Resolve(l.ElementType); ok && atom.Map != nil {
				if f, ok := atom.Map.FindField(name); ok && f.Default != nil {
					k.preset = value.NewValueInterface(f.Default).Unstructured()
				}
			}
			n.keys = append(n.keys, k)
		}
	}
	o, w := d.items(n, old), d.items(n, new)
	for d.err == nil && (len(o) > 0 || len(w) > 0) {
		var a, b leaf
		var which *docItem
		c := 0
		switch {
		case len(o) == 0:
			c = 1
		case len(w) == 0:
			c = -1
		default:
			c = compareItems(&o[0].item, &w[0].item)
		}
		if c <= 0 {
			which, a, o = &o[0], leaf{o[0].doc, true}, o[1:]
		}
		if c >= 0 {
			which, b, w = &w[0], leaf{w[0].doc, true}, w[1:]
		}
		d.push(level{item: &which.item})
		d.compare(l.ElementType, a, b)
		d.pop()
	}
}

// items lists a list's items in the library's order.
func (d *treeDiffer) items(n *node, list []any) []docItem {
	items := make([]docItem, 0, len(list))
	for _, v := range list {
		it := docItem{item{n: n}, v}
		if !it.identifyDoc(v) {
			d.err = errOdd
			return nil
		}
		items = append(items, it)
	}
	slices.SortFunc(items, func(a, b docItem) int { return compareItems(&a.item, &b.item) })
	for i := 1; i < len(items); i++ {
		if compareItems(&items[i-1].item, &items[i].item) == 0 {
			d.err = errOdd
			return nil
		}
	}
	return items
}
