package served

import (
	"context"
	"fmt"

	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/resource"
)

// Kinds that are known at run time only have cached objects of any version. What a request
// works with are views of these: items of the request's version, which the cached items
// remember. Each state of an object is converted once to each version.

// view is what an item remembers of the version at which it was shown.
type view struct {
	item *cache.Item // nil: the item itself
}

// View returns the items as this version has them, in their order. Those of other kinds are so.
func (v *Resource) View(ctx context.Context, items []*cache.Item) ([]*cache.Item, error) {
	if v.live() == nil {
		return items, nil
	}
	out, changed := items, false
	var missing []int
	for i, it := range items {
		shown, known := v.known(it)
		if !known {
			missing = append(missing, i)
		} else if shown != it {
			if !changed {
				out, changed = append(make([]*cache.Item, 0, len(items)), items...), true
			}
			out[i] = shown
		}
	}
	if len(missing) == 0 {
		return out, nil
	}
	if !changed {
		out = append(make([]*cache.Item, 0, len(items)), items...)
	}
	objs := make([]resource.Object, len(missing))
	for n, i := range missing {
		objs[n] = items[i].Object
	}
	shown, err := v.Def.Shown(ctx, objs, v.Version)
	if err != nil {
		return nil, err
	}
	for n, i := range missing {
		out[i] = v.remember(items[i], shown[n])
	}
	return out, nil
}

// ViewOne is View for one item, or none.
func (v *Resource) ViewOne(ctx context.Context, it *cache.Item) (*cache.Item, error) {
	if it == nil || v.live() == nil {
		return it, nil
	}
	if shown, known := v.known(it); known {
		return shown, nil
	}
	out, err := v.View(ctx, []*cache.Item{it})
	if err != nil {
		return nil, err
	}
	return out[0], nil
}

// known is the view of an item if it has been made.
func (v *Resource) known(it *cache.Item) (*cache.Item, bool) {
	if it == nil {
		return nil, true
	}
	w, ok := it.Noted(v).(*view)
	switch {
	case !ok:
		return nil, false
	case w.item == nil:
		return it, true
	}
	return w.item, true
}

// remember keeps the view of an item.
func (v *Resource) remember(it *cache.Item, obj resource.Object) *cache.Item {
	w := &asItIs
	if obj != it.Object {
		if d, ok := obj.(resource.Document); ok {
			obj = d.Packed()
		}
		w = &view{&cache.Item{Key: it.Key, Rev: it.Rev, Object: obj}}
	}
	if w, _ = it.Note(v, func() any { return w }).(*view); w.item == nil {
		return it
	}
	return w.item
}

// asItIs is the view of items that are what the version shows.
var asItIs view

// Normalize has an object of the version, which is the caller's own, be what is served of it.
func (v *Resource) Normalize(obj resource.Object) {
	if live := v.live(); live != nil {
		live.Normalize(obj)
	}
}

// Fill has an object of the version that has come of an apply, and is the caller's own, have its defaults.
func (v *Resource) Fill(obj resource.Object) {
	if live := v.live(); live != nil {
		live.Fill(obj)
	}
}

// Stored is an object of this version, the caller's own, as it is to be stored.
func (v *Resource) Stored(ctx context.Context, obj resource.Object) (resource.Object, error) {
	if v.live() == nil {
		return obj, nil
	}
	out, err := v.Def.Dynamic.Convert(ctx, []resource.Object{obj}, v.Def.Version)
	if err != nil {
		return nil, err
	}
	stored := out[0]
	if stored != obj {
		stored.SetManagedFields(obj.GetManagedFields())
	}
	if d, ok := stored.(resource.Document); ok {
		if err := d.Pack(); err != nil {
			return nil, fmt.Errorf("encode %s %s: %w", v.Def, obj.GetName(), err)
		}
	}
	return stored, nil
}

// Working is a stored object, nil if there is none, for who looks into it more than once.
func Working(obj resource.Object) resource.Object {
	if d, ok := obj.(resource.Document); ok {
		return d.Working()
	}
	return obj
}
