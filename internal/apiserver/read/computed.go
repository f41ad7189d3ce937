package read

import (
	"context"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/kemudi/kemudi/internal/apiserver/call"
	"github.com/kemudi/kemudi/internal/apiserver/refusal"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/resource"
)

// Source makes the objects of a computed resource when they are asked for. What it
// returns is handed over, and has no resourceVersion. It may be called concurrently.
type Source interface {
	// One makes the object of the name; an API error if there is none.
	One(ctx context.Context, namespace, name string) (resource.Object, error)
	// All makes the objects of a namespace, or of all namespaces if that is empty,
	// whose labels are selected. They are in the order of their keys.
	All(ctx context.Context, namespace string, selected labels.Selector) ([]resource.Object, error)
}

// computeOne is Get for a computed resource.
func (r *Reader) computeOne(ctx context.Context, c *call.Call) (*cache.Item, error) {
	src := r.Sources[c.Resource.Def]
	if src == nil {
		return nil, refusal.NotFound()
	}
	obj, err := src.One(ctx, c.Namespace, c.Name)
	if err != nil {
		return nil, err
	}
	return NewItem(obj, 0), nil
}

// computeAll is List for a computed resource. The list is whole whatever the limit: its
// next part would be computed at another time.
func (r *Reader) computeAll(ctx context.Context, c *call.Call, sel *Selection) (*Page, error) {
	src := r.Sources[c.Resource.Def]
	if src == nil {
		return nil, refusal.NotFound()
	}
	selected := sel.labels
	if selected == nil {
		selected = labels.Everything()
	}
	objs, err := src.All(ctx, sel.namespace, selected)
	if err != nil {
		return nil, err
	}
	p := &Page{}
	for _, obj := range objs {
		if sel.Matches(obj) {
			p.Items = append(p.Items, NewItem(obj, 0))
		}
	}
	return p, nil
}
