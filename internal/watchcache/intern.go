package watchcache

import (
	"bytes"
	"hash/maphash"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/resource"
)

// interner shares what many objects have in common: the names of their
// namespaces and labels, and above all the field sets of managedFields, which
// are a good part of an object and the same for all that one template made. It
// shares what an object has in common with its state before, too, and with others
// of its template (template.go).
type interner struct {
	mu struct {
		sync.Mutex
		texts  map[string]string
		fields map[uint64]*metav1.FieldsV1 // by the hash of their bytes: as keys, these would be kept twice
		// What objects of one template are compared with, the newest first. The slices
		// are replaced, not changed.
		templates map[templateKey][]resource.Object
	}
}

const (
	// internMax bounds each table; a full one starts again from nothing.
	internMax = 4096
	// internText is the longest text that is looked up.
	internText = 64
)

var fieldsSeed = maphash.MakeSeed()

// decoded replaces parts of obj by equal shared ones. All of obj is the caller's own,
// and is not changed afterwards. before is its state before; nil: there is none.
func (in *interner) decoded(def *resource.Def, obj, before resource.Object) {
	m := metaOf(obj)
	if m == nil {
		return
	}
	in.words(m)
	in.share(def, obj, before)
}

// handed does the same to an object of which only the fields of its own struct are
// the caller's.
func (in *interner) handed(def *resource.Def, obj, before resource.Object) {
	m := metaOf(obj)
	if m == nil {
		return
	}
	in.names(m)
	in.share(def, obj, before)
}

// words shares what is in tables of metadata that is the caller's own.
func (in *interner) words(m *metav1.ObjectMeta) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.boundLocked()
	m.Namespace, m.GenerateName = in.textLocked(m.Namespace), in.textLocked(m.GenerateName)
	for k, v := range m.Labels {
		m.Labels[in.textLocked(k)] = in.textLocked(v) // an assignment replaces the key's bytes too
	}
	for i := range m.OwnerReferences {
		o := &m.OwnerReferences[i]
		o.APIVersion, o.Kind, o.Name = in.textLocked(o.APIVersion), in.textLocked(o.Kind), in.textLocked(o.Name)
	}
	in.managedLocked(m.ManagedFields)
}

// names does so where only the struct is the caller's own.
func (in *interner) names(m *metav1.ObjectMeta) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.boundLocked()
	m.Namespace, m.GenerateName = in.textLocked(m.Namespace), in.textLocked(m.GenerateName)
	m.ManagedFields = slices.Clone(m.ManagedFields)
	in.managedLocked(m.ManagedFields)
}

// metaOf is the metadata of a typed object, nil for others.
func metaOf(obj resource.Object) *metav1.ObjectMeta {
	if a, ok := obj.(metav1.ObjectMetaAccessor); ok {
		m, _ := a.GetObjectMeta().(*metav1.ObjectMeta)
		return m
	}
	return nil
}

func (in *interner) boundLocked() {
	if in.mu.texts == nil || len(in.mu.texts) > internMax {
		in.mu.texts = map[string]string{}
	}
	if in.mu.fields == nil || len(in.mu.fields) > internMax {
		in.mu.fields = map[uint64]*metav1.FieldsV1{}
	}
}

func (in *interner) managedLocked(managed []metav1.ManagedFieldsEntry) {
	for i := range managed {
		m := &managed[i]
		m.Manager, m.APIVersion = in.textLocked(m.Manager), in.textLocked(m.APIVersion)
		m.FieldsType, m.Subresource = in.textLocked(m.FieldsType), in.textLocked(m.Subresource)
		if m.FieldsV1 == nil {
			continue
		}
		raw := m.FieldsV1.GetRawBytes()
		hash := maphash.Bytes(fieldsSeed, raw)
		if shared := in.mu.fields[hash]; shared != nil && bytes.Equal(shared.GetRawBytes(), raw) {
			m.FieldsV1 = shared
		} else {
			in.mu.fields[hash] = m.FieldsV1
		}
	}
}

func (in *interner) textLocked(s string) string {
	if s == "" || len(s) > internText {
		return s
	}
	if shared, ok := in.mu.texts[s]; ok {
		return shared
	}
	in.mu.texts[s] = s
	return s
}
