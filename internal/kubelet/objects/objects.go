package objects

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/node"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/kubelet/cri"
	"github.com/kemudi/kemudi/internal/resource"
)

// Objects finds the objects that pods refer to: in the process's caches, which
// are asked to hold them, or else in the API.
type Objects struct {
	t              client.Transport
	log            *slog.Logger
	runtimeClasses client.Client[*nodev1.RuntimeClass]
	claims         client.Client[*v1.PersistentVolumeClaim]
	volumes        client.Client[*v1.PersistentVolume]

	mu struct {
		sync.Mutex
		used   map[reference]*followed
		caches map[*cache.Cache]*follower // that are followed
	}
}

// New finds objects by t.
func New(t client.Transport, log *slog.Logger) *Objects {
	o := &Objects{
		t: t, log: log,
		runtimeClasses: client.For(t, node.RuntimeClasses), claims: client.For(t, core.PersistentVolumeClaims), volumes: client.For(t, core.PersistentVolumes),
	}
	o.mu.used, o.mu.caches = map[reference]*followed{}, map[*cache.Cache]*follower{}
	return o
}

// wait is how long an object may take to be fetched.
const wait = 20 * time.Second

// In returns the view that a call with ctx has.
func (o *Objects) In(ctx context.Context) cri.Objects { return view{o, ctx} }

// view lives as long as one call.
type view struct {
	o   *Objects
	ctx context.Context
}

func (v view) ConfigMap(namespace, name string) (*v1.ConfigMap, error) {
	return find(v.ctx, v.o, core.ConfigMaps, namespace, name)
}

func (v view) Secret(namespace, name string) (*v1.Secret, error) {
	return find(v.ctx, v.o, core.Secrets, namespace, name)
}

func (v view) Services(namespace string) []*v1.Service {
	r := client.Cached(v.o.t, core.Services, "")
	ctx, cancel := context.WithTimeout(v.ctx, wait)
	defer cancel()
	select {
	case <-r.Synced():
	case <-ctx.Done():
	}
	return r.List(namespace, nil)
}

// find reads an object from the cache that is fed with it for the pod, or from one that is
// fed for so long.
func find[T resource.Object](ctx context.Context, o *Objects, kind *resource.Resource[T], namespace, name string) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	r, release, err := hold[T](ctx, o, reference{kind.Def, namespace, name})
	defer release()
	if err != nil {
		var none T
		return none, fmt.Errorf("fetch %s/%s: %w", namespace, name, err)
	}
	if obj, ok := r.Get(namespace, name); ok {
		return obj, nil
	}
	obj, err := client.For(o.t, kind).Get(ctx, namespace, name) // the cache may be behind
	if apierrors.IsNotFound(err) {
		// Messages about pods name the kind in the singular.
		err = apierrors.NewNotFound(schema.GroupResource{Group: r.Def.Group, Resource: r.Def.Singular}, name)
	}
	return obj, err
}

// hold waits until there is all that ref names. release must be called, also after an error.
func hold[T resource.Object](ctx context.Context, o *Objects, ref reference) (r client.Reader[T], release func(), err error) {
	r.Cache, release = o.t.Hold(ref.def, ref.scope())
	select {
	case <-r.Synced():
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	return r, release, err
}

// IsMissing reports whether err says that there is no such object.
func IsMissing(err error) bool { return apierrors.IsNotFound(err) }

// RuntimeHandler is the handler that the pod's runtime class names; empty: the
// runtime's default one.
func (o *Objects) RuntimeHandler(ctx context.Context, pod *v1.Pod) (string, error) {
	if pod.Spec.RuntimeClassName == nil || *pod.Spec.RuntimeClassName == "" {
		return "", nil
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	class, err := o.runtimeClasses.Get(ctx, "", *pod.Spec.RuntimeClassName)
	if err != nil {
		return "", fmt.Errorf("failed to get RuntimeClass %q: %w", *pod.Spec.RuntimeClassName, err)
	}
	return class.Handler, nil
}
