package kubelet

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/node"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/kubelet/cri"
	"github.com/kemudi/kemudi/internal/resource"
)

// objects finds the objects that pods refer to: in the process's caches, which
// are asked to hold them, or else in the API.
type objects struct {
	t              client.Transport
	configMaps     client.Client[*v1.ConfigMap]
	secrets        client.Client[*v1.Secret]
	runtimeClasses client.Client[*nodev1.RuntimeClass]
}

func newObjects(t client.Transport) *objects {
	return &objects{
		t: t, configMaps: client.For(t, core.ConfigMaps), secrets: client.For(t, core.Secrets),
		runtimeClasses: client.For(t, node.RuntimeClasses),
	}
}

// objectsWait is how long an object may take to be fetched.
const objectsWait = 20 * time.Second

// in returns the view that a call with ctx has.
func (o *objects) in(ctx context.Context) cri.Objects { return objectsIn{o, ctx} }

// objectsIn lives as long as one call.
type objectsIn struct {
	o   *objects
	ctx context.Context
}

func (v objectsIn) ConfigMap(namespace, name string) (*v1.ConfigMap, error) {
	return find(v.ctx, v.o.configMaps, client.Cached(v.o.t, core.ConfigMaps, only(namespace, name)), namespace, name)
}

func (v objectsIn) Secret(namespace, name string) (*v1.Secret, error) {
	return find(v.ctx, v.o.secrets, client.Cached(v.o.t, core.Secrets, only(namespace, name)), namespace, name)
}

func (v objectsIn) Services(namespace string) []*v1.Service {
	r := client.Cached(v.o.t, core.Services, "")
	ctx, cancel := context.WithTimeout(v.ctx, objectsWait)
	defer cancel()
	select {
	case <-r.Synced():
	case <-ctx.Done():
	}
	return r.List(namespace, nil)
}

// only is the scope of one object.
func only(namespace, name string) string {
	return "metadata.namespace=" + namespace + ",metadata.name=" + name
}

func find[T resource.Object](ctx context.Context, c client.Client[T], r client.Reader[T], namespace, name string) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, objectsWait)
	defer cancel()
	select {
	case <-r.Synced():
		if obj, ok := r.Get(namespace, name); ok {
			return obj, nil
		}
	case <-ctx.Done():
		var none T
		return none, fmt.Errorf("fetch %s/%s: %w", namespace, name, context.Cause(ctx))
	}
	obj, err := c.Get(ctx, namespace, name) // the cache may be behind
	if apierrors.IsNotFound(err) {
		// Messages about pods name the kind in the singular.
		err = apierrors.NewNotFound(schema.GroupResource{Resource: r.Def.Singular}, name)
	}
	return obj, err
}

func isMissing(err error) bool { return apierrors.IsNotFound(err) }

// runtimeHandler is the handler that the pod's runtime class names; empty: the
// runtime's default one.
func (a *Agent) runtimeHandler(ctx context.Context, pod *v1.Pod) (string, error) {
	if pod.Spec.RuntimeClassName == nil || *pod.Spec.RuntimeClassName == "" {
		return "", nil
	}
	ctx, cancel := context.WithTimeout(ctx, objectsWait)
	defer cancel()
	class, err := a.objects.runtimeClasses.Get(ctx, "", *pod.Spec.RuntimeClassName)
	if err != nil {
		return "", fmt.Errorf("failed to get RuntimeClass %q: %w", *pod.Spec.RuntimeClassName, err)
	}
	return class.Handler, nil
}
