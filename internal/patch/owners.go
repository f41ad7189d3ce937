package patch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/kemudi/kemudi/internal/resource"
)

// maxUpdaters is how many managers that do not apply an object may have. More
// are merged, which is left to the library.
const maxUpdaters = 10

// errRare says that a write is left to the library.
var errRare = errors.New("left to the library")

// update does for plain writes what the library's field managers do, on the
// objects as they are: it looks for the fields that differ, and works with sets
// only if there are any. It fails for what it does not know (errRare, errOdd).
func (f *Fields) update(w Write, live, obj resource.Object) error {
	if changesKept(w, live, obj) {
		return errRare
	}
	entries, err := f.entriesBefore(w, live, obj)
	if err != nil {
		return err
	}
	if len(entries) == 0 && live.GetUID() != "" {
		obj.SetManagedFields(nil) // what is not tracked from the start is not tracked
		return nil
	}
	changes := &changes{f: f, w: w, live: live, obj: obj}
	mine, err := changes.at(w.GV)
	if err != nil {
		return err
	}
	next, err := f.ownership(changes, mine, entries)
	if err != nil {
		return err
	}
	obj.SetManagedFields(next)
	return nil
}

// changesKept reports that metadata differs which a write of the status leaves alone, and which is not its
// manager's therefore.
func changesKept(w Write, live, obj resource.Object) bool {
	if w.Sub != "status" || w.Def.Dynamic != nil {
		return false
	}
	switch w.Def.Subresource(w.Sub).Keeps {
	case resource.KeepsLabels:
		return !maps.Equal(live.GetLabels(), obj.GetLabels())
	case resource.KeepsMetadata:
		return !maps.Equal(live.GetLabels(), obj.GetLabels()) || !maps.Equal(live.GetAnnotations(), obj.GetAnnotations()) ||
			!slices.Equal(live.GetFinalizers(), obj.GetFinalizers()) || !equality.Semantic.DeepEqual(live.GetOwnerReferences(), obj.GetOwnerReferences()) ||
			live.GetGenerateName() != obj.GetGenerateName() || !live.GetDeletionTimestamp().Equal(obj.GetDeletionTimestamp()) ||
			!equality.Semantic.DeepEqual(live.GetDeletionGracePeriodSeconds(), obj.GetDeletionGracePeriodSeconds())
	}
	return false
}

// entriesBefore returns the ownership that the write starts from: the stored
// one, unless the client has sent another that can be read.
func (f *Fields) entriesBefore(w Write, live, obj resource.Object) ([]metav1.ManagedFieldsEntry, error) {
	stored, sent := live.GetManagedFields(), obj.GetManagedFields()
	switch {
	case w.Sub != "" || sent == nil:
		return stored, nil
	case len(sent) == 0 || len(sent) == 1 && sent[0] == (metav1.ManagedFieldsEntry{}):
		return nil, nil // a reset
	case slices.EqualFunc(stored, sent, sameEntry):
		return stored, nil
	}
	return nil, errRare // another one: the library reads it, and leaves what it cannot read
}

// sameEntry reports whether an entry that a client sends is a stored one. Clients may write JSON with
// spaces between its parts.
func sameEntry(stored, sent metav1.ManagedFieldsEntry) bool {
	return stored.Manager == sent.Manager && stored.Operation == sent.Operation && stored.APIVersion == sent.APIVersion &&
		stored.Subresource == sent.Subresource && stored.FieldsType == sent.FieldsType && stored.Time.Equal(sent.Time) &&
		sameJSON(stored.FieldsV1.GetRawBytes(), sent.FieldsV1.GetRawBytes())
}

func sameJSON(stored, sent []byte) bool {
	if len(sent) <= len(stored) {
		return bytes.Equal(stored, sent)
	}
	var compact bytes.Buffer
	return json.Compact(&compact, sent) == nil && bytes.Equal(stored, compact.Bytes())
}

// change is how two objects differ at one version: sets of fields as JSON
// without the outer braces.
type change struct{ set, removed string }

func (c change) none() bool { return c.set == "" && c.removed == "" }

// changes compares a stored and a new object, at each version once.
type changes struct {
	f         *Fields
	w         Write
	live, obj resource.Object
	known     map[schema.GroupVersion]change
}

func (c *changes) at(gv schema.GroupVersion) (change, error) {
	if ch, ok := c.known[gv]; ok {
		return ch, nil
	}
	ch, err := change{}, error(nil)
	if c.w.Def.Dynamic != nil {
		ch, err = c.dynamicAt(gv)
	} else {
		ch, err = c.typedAt(gv)
	}
	if err != nil {
		return change{}, err
	}
	if c.known == nil {
		c.known = map[schema.GroupVersion]change{}
	}
	c.known[gv] = ch
	return ch, nil
}

// typedAt compares objects of Go types.
func (c *changes) typedAt(gv schema.GroupVersion) (change, error) {
	n, err := c.f.node(c.w.Def, gv)
	if err != nil {
		return change{}, err
	}
	live, obj, err := c.versions(gv)
	if err != nil {
		return change{}, err
	}
	d := &differ{}
	d.root(n, pointer(live), pointer(obj), skipped(c.w))
	if d.err != nil {
		return change{}, d.err
	}
	return change{string(d.set.json()), string(d.removed.json())}, nil
}

// skipped is the part of the object that a write cannot set.
func skipped(w Write) string {
	switch {
	case w.Sub == "status":
		return "spec"
	case w.Sub == "" && w.Def.Subresource("status") != nil:
		return "status"
	}
	return ""
}

// versions shows the two objects at a version.
func (c *changes) versions(gv schema.GroupVersion) (live, obj resource.Object, err error) {
	if gv == c.w.Def.GVK().GroupVersion() {
		return c.live, c.obj, nil
	}
	ver, ok := (&converter{def: c.w.Def}).version(gv)
	if !ok || ver == nil {
		return nil, nil, errRare
	}
	if live, err = ver.From(c.live); err != nil {
		return nil, nil, err
	}
	obj, err = ver.From(c.obj)
	return live, obj, err
}

// ownership returns the entries after the write.
func (f *Fields) ownership(c *changes, mine change, entries []metav1.ManagedFieldsEntry) ([]metav1.ManagedFieldsEntry, error) {
	self := metav1.ManagedFieldsEntry{
		Manager: c.w.Manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: c.w.GV.String(),
		Subresource: c.w.Sub, FieldsType: "FieldsV1",
	}
	if self.Manager == "" {
		self.Manager = "unknown"
	}
	if mine.none() {
		return entries, nil
	}
	w := f.writers.Get().(*setWriter)
	defer f.writers.Put(w)
	next := make([]metav1.ManagedFieldsEntry, 0, len(entries)+1)
	found := false
	updaters := 0
	for i := range entries {
		e := entries[i]
		isSelf := sameManager(&e, &self)
		found = found || isSelf
		ch, err := c.of(&e)
		if err != nil {
			return nil, err
		}
		raw, err := w.after(e.FieldsV1.GetRawBytes(), ch, isSelf)
		if err != nil {
			return nil, err
		}
		if len(raw) == 0 {
			continue
		}
		if isSelf && mine.set != "" {
			e.Time = now()
		}
		if !bytes.Equal(raw, e.FieldsV1.GetRawBytes()) {
			e.FieldsV1 = newFields(raw)
		}
		if e.Operation == metav1.ManagedFieldsOperationUpdate {
			updaters++
		}
		next = append(next, e)
	}
	if !found && mine.set != "" {
		self.Time, self.FieldsV1 = now(), newFields([]byte("{"+mine.set+"}"))
		next = append(next, self)
		updaters++
	}
	if updaters > maxUpdaters {
		return nil, errRare
	}
	slices.SortStableFunc(next, compareEntries)
	return next, nil
}

// of is the change as the entry's manager sees it.
func (c *changes) of(e *metav1.ManagedFieldsEntry) (change, error) {
	gv, err := schema.ParseGroupVersion(e.APIVersion)
	if err != nil {
		return change{}, errRare
	}
	return c.at(gv)
}

func newFields(raw []byte) *metav1.FieldsV1 {
	f := &metav1.FieldsV1{}
	f.SetRawBytes(raw)
	return f
}

func now() *metav1.Time {
	t := metav1.NewTime(time.Now().UTC().Truncate(time.Second))
	return &t
}

func sameManager(a, b *metav1.ManagedFieldsEntry) bool {
	return a.Manager == b.Manager && a.Operation == b.Operation && a.APIVersion == b.APIVersion && a.Subresource == b.Subresource
}

// compareEntries is the order in which the library lists managers.
func compareEntries(a, b metav1.ManagedFieldsEntry) int {
	if c := strings.Compare(string(a.Operation), string(b.Operation)); c != 0 {
		return c
	}
	if x, y := seconds(a.Time), seconds(b.Time); x != y {
		if x < y {
			return -1
		}
		return 1
	}
	if c := strings.Compare(a.Manager, b.Manager); c != 0 {
		return c
	}
	if c := strings.Compare(a.APIVersion, b.APIVersion); c != 0 {
		return c
	}
	return strings.Compare(a.Subresource, b.Subresource)
}

func seconds(t *metav1.Time) int64 {
	if t == nil {
		return 0
	}
	return t.Unix()
}

// afterSet returns the set of a manager after a change: what it set itself is
// added if it is the writer's own, what others set or removed is taken away.
func afterSet(raw []byte, ch change, own bool) ([]byte, error) {
	before, err := readSet(raw)
	if err != nil {
		return nil, err
	}
	set, err := readSet([]byte("{" + ch.set + "}"))
	if err != nil {
		return nil, err
	}
	removed, err := readSet([]byte("{" + ch.removed + "}"))
	if err != nil {
		return nil, err
	}
	after := before.Difference(removed)
	if own {
		after = after.Union(set)
	} else {
		after = after.Difference(set)
	}
	if after.Empty() {
		return nil, nil
	}
	out, err := after.ToJSON()
	if err != nil {
		return nil, fmt.Errorf("encode managed fields: %w", err)
	}
	return out, nil
}

func readSet(raw []byte) (*fieldpath.Set, error) {
	set := &fieldpath.Set{}
	if len(raw) <= len("{}") {
		return set, nil
	}
	if err := set.FromJSON(bytes.NewReader(raw)); err != nil {
		return nil, fmt.Errorf("decode managed fields: %w", err)
	}
	return set, nil
}
