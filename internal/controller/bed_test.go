package controller_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kemudi/kemudi/internal/api"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/apiserver"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/client/https"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/store/mem"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/watchcache"
)

// lagging is a store whose feed is late.
type lagging struct {
	store.Store
	lag atomic.Int64 // time.Duration
}

func (s *lagging) Watch(ctx context.Context, prefix string, after int64, fn func([]store.Change, int64) error) error {
	return s.Store.Watch(ctx, prefix, after, func(changes []store.Change, progress int64) error {
		if lag := s.lag.Load(); lag > 0 {
			if err := task.Sleep(ctx, time.Duration(lag)); err != nil {
				return err
			}
		}
		return fn(changes, progress)
	})
}

// bed is an API server to try controllers on.
type bed struct {
	t      *testing.T
	store  *lagging
	server *apiserver.Server
	remote *https.Transport // nil: the API is called in process
	log    syncBuffer
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// newBed starts an API server on a memory store; it ends with the test. Call it
// within a synctest bubble.
func newBed(t *testing.T) *bed {
	t.Helper()
	return newBedOn(t, mem.New(mem.Options{}))
}

func newBedOn(t *testing.T, s store.Store) *bed {
	t.Helper()
	b := &bed{t: t, store: &lagging{Store: s}}
	caches, err := watchcache.New(watchcache.Options{Store: b.store, Defs: api.All()})
	if err != nil {
		t.Fatal(err)
	}
	b.server, err = apiserver.New(apiserver.Options{Store: b.store, Defs: api.All(), Caches: caches, Authenticator: anybody})
	if err != nil {
		t.Fatal(err)
	}
	b.background("api server", func(ctx context.Context) error {
		g := task.NewGroup(ctx)
		g.Go("caches", caches.Run)
		g.Go("server", b.server.Run)
		return g.Wait()
	})
	<-caches.Synced()
	return b
}

// background runs f until the test ends, or until the returned function is
// called, which waits for it.
func (b *bed) background(name string, f func(ctx context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(b.t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := f(ctx); err != nil && ctx.Err() == nil {
			b.t.Errorf("%s: %v", name, err)
		}
	})
	stop = sync.OnceFunc(func() {
		cancel()
		wg.Wait()
	})
	b.t.Cleanup(stop)
	return stop
}

// run runs a controller in the background.
func (b *bed) run(c *controller.Controller) (stop func()) {
	return b.background(c.Name, func(ctx context.Context) error { return c.Run(ctx, b.env()) })
}

func (b *bed) env() controller.Env {
	return controller.Env{
		As:     func(name string) client.Transport { return b.as(name) },
		Logger: slog.New(slog.NewTextHandler(&b.log, nil)),
	}
}

// anybody is an administrator.
var anybody = authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
	return &authenticator.Response{User: &user.DefaultInfo{Name: "anybody", Groups: []string{user.SystemPrivilegedGroup}}}, true, nil
})

func (b *bed) as(name string) client.Transport {
	if b.remote != nil {
		return b.remote.As(name)
	}
	return b.local(name)
}

// local is the API in this process: it is there when connections are cut.
func (b *bed) local(name string) client.Transport {
	return b.server.As(&user.DefaultInfo{Name: name, Groups: []string{user.SystemPrivilegedGroup}}, name)
}

func (b *bed) maps() client.Client[*corev1.ConfigMap] {
	return client.For(b.local("test"), core.ConfigMaps)
}

// put creates a ConfigMap.
func (b *bed) put(name string, data map[string]string) *corev1.ConfigMap {
	b.t.Helper()
	cm, err := b.maps().Create(b.t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: data,
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return cm
}

// set changes one key of a ConfigMap.
func (b *bed) set(name, key, value string) *corev1.ConfigMap {
	b.t.Helper()
	cm, err := b.maps().Get(b.t.Context(), "default", name)
	if err != nil {
		b.t.Fatal(err)
	}
	cm = cm.DeepCopy()
	if cm.Data == nil {
		cm.Data = map[string]string{}
	}
	cm.Data[key] = value
	if cm, err = b.maps().Update(b.t.Context(), cm); err != nil {
		b.t.Fatal(err)
	}
	return cm
}

func (b *bed) remove(name string) {
	b.t.Helper()
	if err := b.maps().Delete(b.t.Context(), "default", name, metav1.DeleteOptions{}); err != nil {
		b.t.Fatal(err)
	}
}

// reconcileFunc is a controller of ConfigMaps that is one function.
type reconcileFunc func(ctx context.Context, cm *corev1.ConfigMap) (controller.Next, error)

func (f reconcileFunc) Reconcile(ctx context.Context, cm *corev1.ConfigMap) (controller.Next, error) {
	return f(ctx, cm)
}

// spec declares a controller of ConfigMaps.
func spec(f func(k *controller.Kit, maps controller.Client[*corev1.ConfigMap]) reconcileFunc, writes ...controller.Permission) controller.Spec[*corev1.ConfigMap] {
	return controller.Spec[*corev1.ConfigMap]{
		Name: "test-controller", For: core.ConfigMaps, Writes: writes,
		Setup: func(k *controller.Kit) controller.Reconciler[*corev1.ConfigMap] {
			return f(k, controller.For(k, core.ConfigMaps))
		},
	}
}

// counter counts the ConfigMap "counter" up to last, and makes or deletes the
// ConfigMap "child" with each step, so that each reconcile tells what it has
// seen of the writes of the one before.
func counter(seen *log, last int) controller.Spec[*corev1.ConfigMap] {
	return spec(func(_ *controller.Kit, configMaps controller.Client[*corev1.ConfigMap]) reconcileFunc {
		return func(ctx context.Context, cm *corev1.ConfigMap) (controller.Next, error) {
			if cm.Name != "counter" {
				return controller.Done, nil
			}
			child, ok := configMaps.Get("default", "child")
			n, _ := strconv.Atoi(cm.Data["n"])
			seen.add("n=%d child=%v", n, ok)
			var err error
			switch {
			case n == last:
				return controller.Done, nil
			case ok:
				err = configMaps.Delete(ctx, child)
			default:
				_, err = configMaps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "child"}})
			}
			if err == nil {
				_, err = configMaps.MergePatch(ctx, cm, "", map[string]any{"data": map[string]any{"n": strconv.Itoa(n + 1)}})
			}
			if err != nil {
				seen.add("n=%d: %v", n, err)
			}
			return controller.After(time.Millisecond), err // at once, were it not for the barrier
		}
	}, controller.Create(core.ConfigMaps.Def), controller.Delete(core.ConfigMaps.Def), controller.Patch(core.ConfigMaps.Def, ""))
}

// followsSecrets notes the ConfigMaps it is called with, or called for when they
// are gone. A secret wakes the one that its label names.
func followsSecrets(seen *log) controller.Spec[*corev1.ConfigMap] {
	s := spec(nil)
	s.Watches = []controller.Watch{controller.Mapped(core.Secrets, func(_ *controller.Kit, secret *corev1.Secret) []string {
		return []string{"default/" + secret.Labels["map"]}
	})}
	s.Setup = func(*controller.Kit) controller.Reconciler[*corev1.ConfigMap] { return goner{seen} }
	return s
}

// goner notes what it is called with.
type goner struct{ seen *log }

func (g goner) Reconcile(_ context.Context, cm *corev1.ConfigMap) (controller.Next, error) {
	g.seen.add("%s/%s", cm.Namespace, cm.Name)
	return controller.Done, nil
}

func (g goner) Gone(_ context.Context, key string) error {
	g.seen.add("gone %s", key)
	return nil
}
