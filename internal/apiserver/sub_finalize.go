package apiserver

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kemudi/kemudi/internal/resource"
)

// finalize replaces spec.finalizers of a namespace (namespaces/finalize). The
// namespace goes when the last one does.
func finalize(ctx context.Context, s *Server, c *call, body runtime.Object) (runtime.Object, error) {
	ns, ok := body.(*corev1.Namespace)
	if !ok {
		return nil, apierrors.NewInternalError(fmt.Errorf("finalize %s: got a %T", c.name, body))
	}
	if err := c.fitName(ns); err != nil {
		return nil, err
	}
	item, err := s.write(ctx, c, change{make: func(_ context.Context, old resource.Object) (resource.Object, error) {
		next := old.(*corev1.Namespace).DeepCopy()
		next.ResourceVersion = ns.ResourceVersion
		next.UID = ns.UID
		next.Spec.Finalizers = ns.Spec.Finalizers
		return next, nil
	}})
	if err != nil {
		return nil, err
	}
	return item.Object, nil
}
