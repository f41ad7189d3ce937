package apiserver

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kemudi/kemudi/internal/resource"
)

// update replaces an object, or what a subresource covers of it, by what the call sends.
func (s *Server) update(ctx context.Context, c *call) (answer, error) {
	if c.sub != nil && c.sub.Body != nil {
		return s.updateBody(ctx, c)
	}
	obj := c.body.(resource.Object)
	if err := c.fitName(obj); err != nil {
		return answer{}, err
	}
	rev, created := obj.GetResourceVersion(), false
	item, err := s.write(ctx, c, change{
		missing: c.sub == nil && c.res.Def.UpdateCreates,
		make: func(_ context.Context, old resource.Object) (resource.Object, error) {
			created = old == nil
			next := obj
			if rev == "" {
				next = obj.DeepCopyObject().(resource.Object) // it may be needed again
			}
			next.SetResourceVersion(rev)
			return c.merge(next, old), nil
		},
	})
	return answer{item: item, code: okOrCreated(created)}, err
}

// merge limits what is written to what the subresource covers. What is taken
// over is a copy: admission may change it (A1).
func (c *call) merge(obj, old resource.Object) resource.Object {
	if c.sub != nil && c.sub.Merge != nil && old != nil {
		c.sub.Merge(obj, old.DeepCopyObject().(resource.Object))
	}
	return obj
}

// updateBody replaces the body of a subresource such as scale.
func (s *Server) updateBody(ctx context.Context, c *call) (answer, error) {
	if m, ok := c.body.(metav1.Object); ok {
		if err := c.fitName(m); err != nil {
			return answer{}, err
		}
	}
	item, err := s.write(ctx, c, change{make: func(_ context.Context, old resource.Object) (resource.Object, error) {
		return c.setBody(old, c.body)
	}})
	if err != nil {
		return answer{}, err
	}
	return c.shown(item), nil
}

// setBody returns the object as a subresource's body wants it to be. The body's
// resourceVersion and UID, if given, must be the object's.
func (c *call) setBody(old resource.Object, body runtime.Object) (resource.Object, error) {
	obj := old.DeepCopyObject().(resource.Object)
	obj.SetResourceVersion("")
	if m, ok := body.(metav1.Object); ok {
		obj.SetResourceVersion(m.GetResourceVersion())
		if uid := m.GetUID(); uid != "" && c.verb == "update" {
			obj.SetUID(uid)
		}
	}
	if err := c.sub.Set(obj, body); err != nil {
		return nil, err
	}
	return obj, nil
}
