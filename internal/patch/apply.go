package patch

import (
	"bytes"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kemudi/kemudi/internal/resource"
)

// lastApplied is the annotation of client-side apply.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// apply does what the library's Apply does, directly on Go objects, in the
// cases that make up nearly all requests: nothing is taken back by the
// manager, there is no conflict, and the document fits the schema. For every other
// request, and so for every request that must be refused, it fails with errRare or
// errOdd, and the library has to answer.
func (f *Fields) apply(w Write, live resource.Object, applied *unstructured.Unstructured) (resource.Object, error) {
	exists := live.GetUID() != ""
	entries := live.GetManagedFields()
	switch {
	case w.GV != w.Def.GVK().GroupVersion(), applied.GroupVersionKind() != w.GV.WithKind(w.Def.Kind):
		return nil, errRare
	case exists && len(entries) == 0: // not tracked so far
		return nil, errRare
	case w.Sub == "status" && w.Def.Subresource(w.Sub).Keeps != resource.KeepsNone && saysMetadata(applied):
		return nil, errRare
	case w.Manager == "kubectl" && (live.GetAnnotations()[lastApplied] != "" || applied.GetAnnotations()[lastApplied] != ""):
		return nil, errRare
	}
	n, err := f.node(w.Def, w.GV)
	if err != nil {
		return nil, err
	}
	mine, err := appliedSet(n, applied.Object, skipped(w))
	if err != nil {
		return nil, err
	}
	obj := live.DeepCopyObject().(resource.Object)
	m := &merger{}
	if err := m.root(n, pointer(obj), applied.Object); err != nil {
		return nil, err
	}
	c := &changes{f: f, w: w, live: live, obj: obj}
	ch, err := c.at(w.GV)
	if err != nil {
		return nil, err
	}
	changed := !ch.none() || m.reordered
	next, err := f.appliedOwnership(c, mine, entries, changed)
	if err != nil {
		return nil, err
	}
	if !exists {
		obj.SetName(applied.GetName())
		obj.SetNamespace(applied.GetNamespace())
	}
	w.Def.Default(obj)
	obj.SetManagedFields(next)
	return obj, nil
}

// saysMetadata reports that more is applied of the metadata than what names the object.
func saysMetadata(applied *unstructured.Unstructured) bool {
	metadata, _ := applied.Object["metadata"].(map[string]any)
	for name := range metadata {
		if name != "name" && name != "namespace" {
			return true
		}
	}
	return false
}

// appliedOwnership returns the entries after an apply of the fields in mine.
func (f *Fields) appliedOwnership(c *changes, mine string, entries []metav1.ManagedFieldsEntry, changed bool) ([]metav1.ManagedFieldsEntry, error) {
	self := metav1.ManagedFieldsEntry{
		Manager: c.w.Manager, Operation: metav1.ManagedFieldsOperationApply, APIVersion: c.w.GV.String(),
		Subresource: c.w.Sub, FieldsType: "FieldsV1",
	}
	raw := []byte("{" + mine + "}")
	sets := f.writers.Get().(*setWriter)
	defer f.writers.Put(sets)
	var next []metav1.ManagedFieldsEntry
	for _, e := range entries {
		if e.Manager == self.Manager && e.Operation == self.Operation && e.Subresource == self.Subresource {
			if err := f.takesNothingBack(&e, c.w, mine); err != nil {
				return nil, err
			}
			self.Time, self.FieldsV1 = e.Time, e.FieldsV1
			continue
		}
		kept, err := f.keeps(c, sets, &e)
		if err != nil {
			return nil, err
		}
		if len(kept) == 0 {
			continue
		}
		if !bytes.Equal(kept, e.FieldsV1.GetRawBytes()) {
			e.FieldsV1 = newFields(kept)
		}
		next = append(next, e)
	}
	if !bytes.Equal(self.FieldsV1.GetRawBytes(), raw) {
		self.FieldsV1 = newFields(raw)
	}
	if changed {
		self.Time = now()
	}
	if mine != "" {
		next = append(next, self)
	}
	slices.SortStableFunc(next, compareEntries)
	return next, nil
}

// takesNothingBack: a field that the manager applied before and does not now
// may have to be removed, which is left to the library.
func (f *Fields) takesNothingBack(e *metav1.ManagedFieldsEntry, w Write, mine string) error {
	if e.APIVersion != w.GV.String() {
		return errRare
	}
	sets := f.writers.Get().(*setWriter)
	defer f.writers.Put(sets)
	left, err := sets.after(e.FieldsV1.GetRawBytes(), change{set: mine}, false)
	if err != nil {
		return err
	}
	if len(left) > 0 {
		return errRare
	}
	return nil
}

// keeps returns what another manager keeps of its fields. If the apply is not
// forced that must be all: conflicts are explained by the library. What it returns is
// valid as long as that of the writer.
func (f *Fields) keeps(c *changes, sets *setWriter, e *metav1.ManagedFieldsEntry) ([]byte, error) {
	ch, err := c.of(e)
	if err != nil {
		return nil, err
	}
	raw := e.FieldsV1.GetRawBytes()
	if !c.w.Force {
		kept, err := sets.after(raw, change{set: ch.set}, false)
		if err != nil {
			return nil, err
		}
		if !bytes.Equal(kept, raw) {
			return nil, errRare
		}
	}
	return sets.after(raw, ch, false)
}

// appliedSet returns the fields that a document sets, as a set without its
// outer braces.
func appliedSet(n *node, doc map[string]any, skip string) (string, error) {
	s := &setter{}
	for i := range n.fields {
		f := &n.fields[i]
		v, ok := doc[f.name]
		if !ok || f.name == skip {
			continue
		}
		s.field(f, v)
	}
	return string(s.set.json()), s.err
}

// setter walks a decoded document.
type setter struct {
	set trie
	err error
}

func (s *setter) value(n *node, v any) {
	if v == nil {
		s.err = errRare // an explicit null
		return
	}
	switch n.shape {
	case structOf:
		s.object(n, v)
	case mapOf:
		s.entries(n, v)
	case setOf, keyedSetOf:
		s.items(n, v)
	default:
		s.set.mark()
	}
}

func (s *setter) object(n *node, v any) {
	m, ok := v.(map[string]any)
	if !ok {
		s.err = errRare
		return
	}
	if len(m) == 0 {
		s.set.mark()
	}
	for i := range n.fields {
		f := &n.fields[i]
		if v, ok := m[f.name]; ok {
			s.field(f, v)
		}
	}
}

// field walks a field's value. What a Go object shows as null, documents made of
// one say.
func (s *setter) field(f *fieldNode, v any) {
	s.set.push(level{label: f.label})
	if v == nil && f.null {
		s.set.mark()
	} else {
		s.value(f.node, v)
	}
	s.set.pop()
}

func (s *setter) entries(n *node, v any) {
	m, ok := v.(map[string]any)
	if !ok {
		s.err = errRare
		return
	}
	if len(m) == 0 {
		s.set.mark()
	}
	for _, k := range sortedKeys(m) {
		s.set.push(level{key: k})
		s.set.mark()
		s.value(n.elem, m[k])
		s.set.pop()
	}
}

func (s *setter) items(n *node, v any) {
	list, ok := v.([]any)
	if !ok {
		s.err = errRare
		return
	}
	items := make([]docItem, 0, len(list))
	for _, v := range list {
		it := docItem{item{n: n}, v}
		if !it.identifyDoc(v) {
			s.err = errOdd
			return
		}
		items = append(items, it)
	}
	slices.SortFunc(items, func(a, b docItem) int { return compareItems(&a.item, &b.item) })
	for i := range items {
		if i > 0 && compareItems(&items[i-1].item, &items[i].item) == 0 {
			s.err = errOdd
			return
		}
		s.set.push(level{item: &items[i].item})
		s.set.mark()
		if n.shape == keyedSetOf {
			s.value(n.elem, items[i].doc)
		}
		s.set.pop()
	}
}

// docItem is an item of a list in a document.
type docItem struct {
	item
	doc any
}

// identifyDoc is identify for an item of a document.
func (it *item) identifyDoc(v any) bool {
	if it.n.shape == setOf {
		k, ok := docScalar(v)
		it.keys = []any{k}
		return ok
	}
	m, ok := v.(map[string]any)
	if !ok {
		return false
	}
	it.keys = make([]any, len(it.n.keys))
	some := false
	for i := range it.n.keys {
		k := &it.n.keys[i]
		it.keys[i] = k.preset
		if v, ok := m[k.name]; ok {
			if it.keys[i], ok = docScalar(v); !ok {
				return false
			}
		}
		some = some || it.keys[i] != nil
	}
	return some
}

func docScalar(v any) (any, bool) {
	switch v.(type) {
	case string, int64, bool:
		return v, true
	}
	return nil, false
}

func sortedKeys(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
