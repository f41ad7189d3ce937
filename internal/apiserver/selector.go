package apiserver

import (
	"fmt"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kemudi/kemudi/internal/apiserver/call"
	"github.com/kemudi/kemudi/internal/apiserver/refusal"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/resource"
)

// selection says which objects a list or watch is about.
type selection struct {
	namespace string
	labels    labels.Selector // nil: all
	fields    []requirement
	name      string // exact metadata.name, if that is asked for

	// index and value name an index of the cache that narrows the search.
	index, value string
}

type requirement struct {
	get    func(resource.Object) string
	value  string
	differ bool // !=
}

// newSelection reads label and field selectors.
func newSelection(c *call.Call, labelSelector, fieldSelector string) (*selection, error) {
	sel := &selection{namespace: c.Namespace}
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
		if err := sel.addField(c.Resource.Def, r); err != nil {
			return nil, err
		}
	}
	return sel, nil
}

func (sel *selection) addField(d *resource.Def, r fields.Requirement) error {
	q := requirement{value: r.Value, differ: r.Operator == "!="}
	switch r.Field {
	case "metadata.name":
		q.get = resource.Object.GetName
		if !q.differ {
			sel.name = r.Value
		}
	case "metadata.namespace":
		q.get = resource.Object.GetNamespace
	default:
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

// everything reports that the selection is no narrower than its namespace.
func (sel *selection) everything() bool { return sel.labels == nil && len(sel.fields) == 0 }

// matches reports whether the selection has the object, whose namespace has
// been looked at already.
func (sel *selection) matches(obj resource.Object) bool {
	for i := range sel.fields {
		if q := &sel.fields[i]; (q.get(obj) == q.value) == q.differ {
			return false
		}
	}
	return sel.labels == nil || sel.labels.Matches(labels.Set(obj.GetLabels()))
}

func (sel *selection) has(it *cache.Item) bool { return it != nil && sel.matches(it.Object) }

// String shows the selection in log and error texts.
func (sel *selection) String() string {
	return fmt.Sprintf("namespace %q, labels %v", sel.namespace, sel.labels)
}

// selectionOf narrows the call by its options; a name in the path counts as a
// field selector, as in the old form of watches.
func selectionOf(c *call.Call) (*selection, error) {
	sel, err := newSelection(c, c.List.LabelSelector, c.List.FieldSelector)
	if err != nil || c.Name == "" || sel.name == c.Name {
		return sel, err
	}
	sel.name = c.Name
	sel.fields = append(sel.fields, requirement{get: resource.Object.GetName, value: c.Name})
	return sel, nil
}
