package write

import (
	"context"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/apiserver/call"
	"github.com/kemudi/kemudi/internal/resource"
)

// Update replaces an object, or what a subresource covers of it, by what the call sends.
func (p *Pipeline) Update(ctx context.Context, c *call.Call) (call.Result, error) {
	if c.Sub != nil && c.Sub.Body != nil {
		return p.updateBody(ctx, c)
	}
	obj := c.Body.(resource.Object)
	if err := c.RequireName(obj); err != nil {
		return call.Result{}, err
	}
	rev, created, begun := obj.GetResourceVersion(), false, false
	item, err := p.Write(ctx, c, Change{
		uid:     obj.GetUID(),
		missing: c.Sub == nil && c.Resource.Def.Update.Has(resource.UpdateCreates),
		Make: func(_ context.Context, old resource.Object) (next resource.Object, err error) {
			created = old == nil
			if next = obj; rev == "" { // it may be needed again, as it was sent
				next, err = sentFor(c, obj, begun)
				begun = true
			}
			if err != nil {
				return nil, err
			}
			next.SetResourceVersion(rev)
			return covered(c, next, old), nil
		},
	})
	return call.Result{Item: item, Code: okOrCreated(created)}, err
}

// sentFor is the object that the call sends, for one more attempt: a copy, or what is
// read again. What can be read again is given away at first as it is.
func sentFor(c *call.Call, obj resource.Object, again bool) (resource.Object, error) {
	switch {
	case c.Again == nil:
		return obj.DeepCopyObject().(resource.Object), nil
	case !again:
		return obj, nil
	}
	body, err := c.Again()
	if err != nil {
		return nil, err
	}
	next := body.(resource.Object)
	return next, c.FitName(next)
}

// covered limits what is written to what the subresource covers. What it takes over is
// shared with the stored object, which nobody changes from here on (A1).
func covered(c *call.Call, obj, old resource.Object) resource.Object {
	if c.Sub != nil && c.Sub.Merge != nil && old != nil {
		c.Sub.Merge(obj, old)
	}
	return obj
}

// updateBody replaces the body of a subresource such as scale.
func (p *Pipeline) updateBody(ctx context.Context, c *call.Call) (call.Result, error) {
	var uid types.UID
	if m, ok := c.Body.(metav1.Object); ok {
		if err := c.RequireName(m); err != nil {
			return call.Result{}, err
		}
		uid = m.GetUID()
	}
	item, err := p.Write(ctx, c, Change{uid: uid, Make: func(_ context.Context, old resource.Object) (resource.Object, error) {
		return setBody(c, old, c.Body)
	}})
	if err != nil {
		return call.Result{}, err
	}
	return c.Shown(item), nil
}

// setBody returns the object as a subresource's body wants it to be. The body's
// resourceVersion and UID, if given, must be the object's.
func setBody(c *call.Call, old resource.Object, body runtime.Object) (resource.Object, error) {
	obj := old.DeepCopyObject().(resource.Object)
	obj.SetResourceVersion("")
	if m, ok := body.(metav1.Object); ok {
		obj.SetResourceVersion(m.GetResourceVersion())
		if uid := m.GetUID(); uid != "" && c.Verb == "update" {
			obj.SetUID(uid)
		}
	}
	if err := c.Sub.Set(obj, body); err != nil {
		return nil, err
	}
	return obj, nil
}

func okOrCreated(created bool) int {
	if created {
		return http.StatusCreated
	}
	return http.StatusOK
}
