package client

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/resource"
)

// Client makes requests for one resource. It is a small value; copy it freely.
type Client[T resource.Object] struct {
	t   Transport
	def *resource.Def
}

// For returns the client of a resource over t.
func For[T resource.Object](t Transport, r *resource.Resource[T]) Client[T] {
	return Client[T]{t: t, def: r.Def}
}

// Get reads the newest state of one object.
func (c Client[T]) Get(ctx context.Context, namespace, name string) (T, error) {
	return c.do(ctx, &Request{Verb: "get", Namespace: namespace, Name: name})
}

// List reads the objects of a namespace (empty: all namespaces).
func (c Client[T]) List(ctx context.Context, namespace string, o metav1.ListOptions) ([]T, error) {
	l, err := c.t.List(ctx, &Request{Verb: "list", Def: c.def, Namespace: namespace, List: o})
	if err != nil {
		return nil, err
	}
	items := make([]T, len(l.Items))
	for i, it := range l.Items {
		items[i] = it.(T)
	}
	return items, nil
}

// Create stores a new object, which is handed over, and returns it as stored.
func (c Client[T]) Create(ctx context.Context, obj T) (T, error) {
	return c.do(ctx, &Request{Verb: "create", Namespace: obj.GetNamespace(), Name: obj.GetName(), Object: obj})
}

// Update replaces an object. Its resourceVersion, if set, must be the stored one.
func (c Client[T]) Update(ctx context.Context, obj T) (T, error) {
	return c.UpdateSub(ctx, "", obj)
}

// UpdateStatus replaces the status of an object.
func (c Client[T]) UpdateStatus(ctx context.Context, obj T) (T, error) {
	return c.UpdateSub(ctx, "status", obj)
}

// UpdateSub replaces what the subresource covers.
func (c Client[T]) UpdateSub(ctx context.Context, sub string, obj T) (T, error) {
	return c.do(ctx, &Request{Verb: "update", Sub: sub, Namespace: obj.GetNamespace(), Name: obj.GetName(), Object: obj})
}

// Patch changes an object, or what a subresource covers, by a patch.
func (c Client[T]) Patch(ctx context.Context, namespace, name, sub string, p Patch) (T, error) {
	return c.do(ctx, &Request{
		Verb: "patch", Sub: sub, Namespace: namespace, Name: name,
		Patch: p.Data, PatchType: p.Type, FieldManager: p.FieldManager, Force: p.Force,
	})
}

// Patch is the content of a patch request.
type Patch struct {
	Type         types.PatchType
	Data         []byte
	FieldManager string // required for apply
	Force        *bool
}

// Delete removes an object, with the options' preconditions and policy.
func (c Client[T]) Delete(ctx context.Context, namespace, name string, o metav1.DeleteOptions) error {
	_, err := c.t.Do(ctx, &Request{Verb: "delete", Def: c.def, Namespace: namespace, Name: name, Delete: o})
	return err
}

// Post creates a subresource object (Binding, TokenRequest, Eviction ...), which
// is handed over, and returns the answer.
func (c Client[T]) Post(ctx context.Context, namespace, name, sub string, body runtime.Object) (runtime.Object, error) {
	return c.t.Do(ctx, &Request{Verb: "create", Def: c.def, Sub: sub, Namespace: namespace, Name: name, Object: body})
}

func (c Client[T]) do(ctx context.Context, r *Request) (T, error) {
	r.Def = c.def
	obj, err := c.t.Do(ctx, r)
	if err != nil {
		var none T
		return none, err
	}
	return obj.(T), nil
}
