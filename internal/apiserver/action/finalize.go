package action

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kemudi/kemudi/internal/resource"
)

// finalize replaces spec.finalizers of a namespace (namespaces/finalize). The
// namespace goes when the last one does.
func (a *Actions) finalize(ctx context.Context, q *Request) (runtime.Object, error) {
	ns, err := bodyOf[*corev1.Namespace](q)
	if err != nil {
		return nil, err
	}
	if err := q.API.Fit(ns); err != nil {
		return nil, err
	}
	stored, err := q.API.Write(ctx, Change{Make: func(old resource.Object) (resource.Object, error) {
		next := old.(*corev1.Namespace).DeepCopy()
		next.ResourceVersion = ns.ResourceVersion
		next.UID = ns.UID
		next.Spec.Finalizers = ns.Spec.Finalizers
		return next, nil
	}})
	if err != nil {
		return nil, err
	}
	return stored, nil
}
