package read

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/sharding"
	parser "k8s.io/apiserver/pkg/sharding"

	"github.com/kemudi/kemudi/internal/apiserver/call"
	"github.com/kemudi/kemudi/internal/apiserver/refusal"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/resource"
)

// Selection says which objects a list or watch is about.
type Selection struct {
	namespace string
	labels    labels.Selector // nil: all
	fields    []requirement
	name      string            // exact metadata.name, if that is asked for
	shard     sharding.Selector // the share of all objects that is asked for; nil: all

	// view is how objects are looked at whose fields are not those of what is stored; nil: as they are.
	view func(it *cache.Item) *cache.Item

	// index and value name an index of the cache that narrows the search.
	index, value string
}

type requirement struct {
	get    func(resource.Object) string
	value  string
	differ bool // !=
}

// newSelection reads label and field selectors.
func newSelection(ctx context.Context, c *call.Call, labelSelector, fieldSelector string) (*Selection, error) {
	sel := &Selection{namespace: c.Namespace}
	if labelSelector != "" {
		l, err := labels.Parse(labelSelector)
		if err != nil {
			return nil, refusal.BadRequest("%v", err)
		}
		if !l.Empty() {
			sel.labels = l
		}
	}
	if fieldSelector == "" {
		return sel, nil
	}
	f, err := fields.ParseSelector(fieldSelector)
	if err != nil {
		return nil, refusal.BadRequest("%v", err)
	}
	for _, r := range f.Requirements() {
		if err := sel.addField(ctx, c, r); err != nil {
			return nil, err
		}
	}
	return sel, nil
}

func (sel *Selection) addField(ctx context.Context, c *call.Call, r fields.Requirement) error {
	d := c.Resource.Def
	q := requirement{value: r.Value, differ: r.Operator == "!="}
	switch r.Field {
	case "metadata.name":
		q.get = resource.Object.GetName
		if !q.differ && sel.name == "" { // none has two, which all that is found is held against
			sel.name = r.Value
		}
	case "metadata.namespace":
		q.get = resource.Object.GetNamespace
	default:
		if v := c.Resource.Version; v != nil && v.Live != nil {
			if q.get = v.Live.Fields[r.Field]; q.get == nil {
				return refusal.BadRequest("field label not supported: %s", r.Field)
			}
			sel.view = func(it *cache.Item) *cache.Item {
				if shown, err := c.Resource.ViewOne(ctx, it); err == nil {
					return shown
				}
				return it // it is refused where it is shown
			}
			break
		}
		if q.get = d.Fields[r.Field]; q.get == nil {
			return unknownField(d, r.Field)
		}
		if d.Index[r.Field] != nil && !q.differ {
			sel.index, sel.value = r.Field, r.Value
		}
	}
	sel.fields = append(sel.fields, q)
	return nil
}

func unknownField(d *resource.Def, name string) error {
	if len(d.Fields) == 0 {
		return refusal.BadRequest("%q is not a known field selector: only \"metadata.name\", \"metadata.namespace\"", name)
	}
	return refusal.BadRequest("field label not supported: %s", name)
}

// Cursor is what a cursor is to follow, as far as the cache can narrow it.
func (sel *Selection) Cursor() cache.CursorOptions {
	o := cache.CursorOptions{Namespace: sel.namespace}
	if sel.index != "" {
		o.Index, o.Value = sel.index, sel.value
	}
	return o
}

// Everything reports that the selection is no narrower than its namespace.
func (sel *Selection) Everything() bool {
	return sel.labels == nil && len(sel.fields) == 0 && sel.shard == nil
}

// Matches reports whether the selection has the object, whose namespace has
// been looked at already.
func (sel *Selection) Matches(obj resource.Object) bool {
	for i := range sel.fields {
		if q := &sel.fields[i]; (q.get(obj) == q.value) == q.differ {
			return false
		}
	}
	if sel.shard != nil {
		if ok, err := sel.shard.Matches(obj); !ok || err != nil { // an object has what shares are made by
			return false
		}
	}
	return sel.labels == nil || sel.labels.Matches(labels.Set(obj.GetLabels()))
}

// addShard narrows the selection to a share of all objects, as the client words it.
func (sel *Selection) addShard(text string) error {
	if text == "" {
		return nil
	}
	shard, err := parser.Parse(text)
	if err != nil {
		return refusal.BadRequest("invalid shard selector: %v", err)
	}
	if !shard.Empty() {
		sel.shard = shard
	}
	return nil
}

// tellShard notes in a list that it is a share alone.
func (sel *Selection) tellShard(p *Page) {
	if sel.shard != nil {
		p.Meta.ShardInfo = &metav1.ShardInfo{Selector: sel.shard.String()}
	}
}

// Has reports whether the selection has an item, whose namespace has been looked at already. None it has not.
func (sel *Selection) Has(it *cache.Item) bool {
	if it != nil && sel.view != nil {
		it = sel.view(it)
	}
	return it != nil && sel.Matches(it.Object)
}

// String shows the selection in log and error texts.
func (sel *Selection) String() string {
	return fmt.Sprintf("namespace %q, labels %v", sel.namespace, sel.labels)
}

// SelectionOf narrows the call by its options; a name in the path counts as a
// field selector, as in the old form of watches.
func SelectionOf(ctx context.Context, c *call.Call) (*Selection, error) {
	sel, err := newSelection(ctx, c, c.List.LabelSelector, c.List.FieldSelector)
	if err == nil {
		err = sel.addShard(c.List.ShardSelector)
	}
	if err != nil || c.Name == "" || sel.name == c.Name {
		return sel, err
	}
	if len(sel.fields) > 0 {
		return nil, refusal.BadRequest("fieldSelector metadata.name doesn't match requested name")
	}
	sel.name = c.Name
	sel.fields = append(sel.fields, requirement{get: resource.Object.GetName, value: c.Name})
	return sel, nil
}
