package kubelet

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/resource"
)

// memAPI is as much of an API server as the agent needs: objects in caches,
// with revisions, conflicts, UIDs, and graceful deletion of pods.
type memAPI struct {
	progress cache.Progress
	mu       struct {
		sync.Mutex
		rev     int64
		caches  map[*resource.Def]*cache.Cache
		broken  error                       // answer of every request, if not nil
		refuse  func(*client.Request) error // asked first; may be nil
		updates map[string]int
		events  []string
	}
}

var _ client.Transport = (*memAPI)(nil)

func newMemAPI() *memAPI {
	m := &memAPI{}
	m.mu.rev = 1
	m.mu.caches = map[*resource.Def]*cache.Cache{}
	m.mu.updates = map[string]int{}
	return m
}

func (m *memAPI) Cache(def *resource.Def, _ string) *cache.Cache {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.cacheLocked(def)
}

func (m *memAPI) cacheLocked(def *resource.Def) *cache.Cache {
	c := m.mu.caches[def]
	if c == nil {
		c = cache.New(def, &m.progress)
		c.Replace(nil, m.mu.rev)
		m.mu.caches[def] = c
	}
	return c
}

func (m *memAPI) Do(_ context.Context, r *client.Request) (runtime.Object, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.broken != nil {
		return nil, m.mu.broken
	}
	if m.mu.refuse != nil {
		if err := m.mu.refuse(r); err != nil {
			return nil, err
		}
	}
	c := m.cacheLocked(r.Def)
	it := c.Get(cache.Key(r.Namespace, r.Name))
	if r.Verb == "create" && r.Sub == "" {
		if it != nil {
			return nil, apierrors.NewAlreadyExists(r.Def.GroupResource(), r.Name)
		}
		obj := r.Object.DeepCopyObject().(resource.Object)
		obj.SetUID(types.UID(fmt.Sprintf("uid-%d", m.mu.rev)))
		obj.SetCreationTimestamp(metav1.Now().Rfc3339Copy())
		obj.SetGeneration(1)
		return m.storeLocked(c, obj), nil
	}
	if it == nil {
		return nil, apierrors.NewNotFound(r.Def.GroupResource(), r.Name)
	}
	switch r.Verb {
	case "get":
		return it.Object, nil
	case "update":
		m.mu.updates[r.Def.Plural+"/"+r.Sub]++
		obj := r.Object.DeepCopyObject().(resource.Object)
		if rv := obj.GetResourceVersion(); rv != "" && rv != strconv.FormatInt(it.Rev, 10) || obj.GetUID() != it.Object.GetUID() {
			return nil, apierrors.NewConflict(r.Def.GroupResource(), r.Name, errors.New("the object has been modified"))
		}
		return m.storeLocked(c, obj), nil
	case "delete":
		return m.deleteLocked(c, it, r)
	}
	return nil, apierrors.NewMethodNotSupported(r.Def.GroupResource(), r.Verb)
}

func (m *memAPI) List(context.Context, *client.Request) (client.List, error) {
	return client.List{}, errors.New("not needed")
}

func (m *memAPI) storeLocked(c *cache.Cache, obj resource.Object) resource.Object {
	m.mu.rev++
	obj.SetResourceVersion(strconv.FormatInt(m.mu.rev, 10))
	c.Apply([]cache.Change{{Item: &cache.Item{Key: cache.Key(obj.GetNamespace(), obj.GetName()), Rev: m.mu.rev, Object: obj}}})
	m.progress.Advance(m.mu.rev)
	return obj
}

func (m *memAPI) deleteLocked(c *cache.Cache, it *cache.Item, r *client.Request) (runtime.Object, error) {
	if p := r.Delete.Preconditions; p != nil && p.UID != nil && *p.UID != it.Object.GetUID() {
		return nil, apierrors.NewConflict(r.Def.GroupResource(), r.Name, errors.New("UID"))
	}
	obj := it.Object.DeepCopyObject().(resource.Object)
	if r.Def.GracePeriod != nil {
		if grace := r.Def.GracePeriod(obj, r.Delete.GracePeriodSeconds); grace > 0 {
			now := metav1.Now()
			obj.SetDeletionTimestamp(&now)
			obj.SetDeletionGracePeriodSeconds(&grace)
			return m.storeLocked(c, obj), nil
		}
	}
	m.mu.rev++
	c.Apply([]cache.Change{{Item: &cache.Item{Key: it.Key, Rev: m.mu.rev, Object: obj}, Delete: true}})
	m.progress.Advance(m.mu.rev)
	return nil, nil
}

// Event notes an event as a line of text.
func (m *memAPI) Event(obj resource.Object, kind, reason, message string) {
	where := obj.GetName()
	if p, ok := obj.(client.Part); ok {
		where += " " + p.FieldPath
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.events = append(m.mu.events, fmt.Sprintf("%s %s %s: %s", where, kind, reason, message))
}

func (m *memAPI) takeEvents() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	events := m.mu.events
	m.mu.events = nil
	return events
}

func (m *memAPI) updates(what string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.updates[what]
}

func (m *memAPI) breakWith(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.broken = err
}

func pods(m *memAPI) client.Client[*v1.Pod] { return client.For(m, core.Pods) }

// createPod makes a pod from the YAML of its spec, bound to node n1.
func createPod(t *testing.T, m *memAPI, name, spec string) *v1.Pod {
	t.Helper()
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	if err := yaml.UnmarshalStrict([]byte(spec), &pod.Spec); err != nil {
		t.Fatal(err)
	}
	core.Pods.Default(pod)
	pod.Spec.NodeName = "n1"
	pod.Status.Phase = v1.PodPending
	created, err := pods(m).Create(t.Context(), pod)
	if err != nil {
		t.Fatal(err)
	}
	return created
}

func getPod(t *testing.T, m *memAPI, name string) *v1.Pod {
	t.Helper()
	pod, err := pods(m).Get(t.Context(), "default", name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

func deletePod(t *testing.T, m *memAPI, name string, grace int64) {
	t.Helper()
	if err := pods(m).Delete(t.Context(), "default", name, metav1.DeleteOptions{GracePeriodSeconds: &grace}); err != nil {
		t.Fatal(err)
	}
}

// refuseWith has f asked before every request.
func (m *memAPI) refuseWith(f func(*client.Request) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.refuse = f
}
