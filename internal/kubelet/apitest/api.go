// Package apitest is the API as tests of the node agent want it: a server on a
// memory store, in the process, whose answers a test can disturb. It is for tests
// of package kubelet, of the packages below it and of a whole node only.
package apitest

import (
	"context"
	"fmt"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/yaml"

	"github.com/kemudi/kemudi/internal/api"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/storage"
	"github.com/kemudi/kemudi/internal/apiserver"
	"github.com/kemudi/kemudi/internal/auth"
	"github.com/kemudi/kemudi/internal/auth/node"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/store/mem"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/watchcache"
)

// API is an API server on a memory store, which a test can disturb: requests
// are counted, and may be refused on their way.
type API struct {
	client.Transport                 // as an administrator, undisturbed
	Progress         *cache.Progress // of the server's caches
	server           *apiserver.Server
	mu               struct {
		sync.Mutex
		broken  error                       // answer of every request, if not nil
		refuse  func(*client.Request) error // asked first; may be nil
		updates map[string]int
		events  []string
	}
}

// New runs a server until the test ends.
func New(t *testing.T) *API {
	t.Helper()
	o := apiserver.Options{Store: mem.New(mem.Options{}), Defs: api.All(), Values: apiserver.Values{Settings: map[string]string{core.FlagServiceCIDR: "10.0.0.0/16"}}}
	caches, err := watchcache.New(watchcache.Options{Store: o.Store, Defs: o.Defs})
	if err != nil {
		t.Fatal(err)
	}
	o.Caches = caches
	o.Authorizer = auth.Authorizers(node.New(node.Caches{
		Pods: caches.Cache(core.Pods.Def), Claims: caches.Cache(core.PersistentVolumeClaims.Def), Volumes: caches.Cache(core.PersistentVolumes.Def),
		VolumeAttachments: caches.Cache(storage.VolumeAttachments.Def),
	}))
	s, err := apiserver.New(o)
	if err != nil {
		t.Fatal(err)
	}
	g := task.NewGroup(t.Context())
	g.Go("caches", caches.Run)
	g.Go("server", s.Run)
	t.Cleanup(func() {
		g.Cancel(context.Canceled)
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
	m := &API{
		Transport: s.As(&user.DefaultInfo{Name: "admin", Groups: []string{user.SystemPrivilegedGroup}}, "suite"),
		Progress:  caches.Progress(),
		server:    s,
	}
	m.mu.updates = map[string]int{}
	return m
}

// Do passes a request on, unless it is to fail.
func (m *API) Do(ctx context.Context, r *client.Request) (runtime.Object, error) {
	if err := m.note(r); err != nil {
		return nil, err
	}
	return m.Transport.Do(ctx, r)
}

// AsNode is the API for the agent of a node, which may do no more than that: it is
// disturbed like m.
func (m *API) AsNode(name string) client.Transport {
	agent := &user.DefaultInfo{Name: "system:node:" + name, Groups: []string{user.NodesGroup, user.AllAuthenticated}}
	return &asNode{m.server.As(agent, "suite"), m}
}

type asNode struct {
	client.Transport
	m *API
}

func (n *asNode) Do(ctx context.Context, r *client.Request) (runtime.Object, error) {
	if err := n.m.note(r); err != nil {
		return nil, err
	}
	return n.Transport.Do(ctx, r)
}

func (m *API) note(r *client.Request) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.broken != nil {
		return m.mu.broken
	}
	if m.mu.refuse != nil {
		if err := m.mu.refuse(r); err != nil {
			return err
		}
	}
	if r.Verb == "update" {
		m.mu.updates[r.Def.Plural+"/"+r.Sub]++
	}
	return nil
}

// Event notes an event as a line of text, with its annotations, if it has some, at the end.
func (m *API) Event(obj resource.Object, kind, reason, message string) {
	where := obj.GetName()
	if p, ok := obj.(client.Part); ok {
		where += " " + p.FieldPath
	}
	if a, ok := obj.(client.Annotated); ok {
		message += fmt.Sprint(a.Annotations)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.events = append(m.mu.events, fmt.Sprintf("%s %s %s: %s", where, kind, reason, message))
}

// TakeEvents returns the events since it was last called.
func (m *API) TakeEvents() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	events := m.mu.events
	m.mu.events = nil
	return events
}

// Updates is how many updates there were of a resource and subresource ("pods/status").
func (m *API) Updates(what string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.updates[what]
}

// BreakWith has every request fail with err; nil: none.
func (m *API) BreakWith(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.broken = err
}

// Pods is a client for pods.
func Pods(m *API) client.Client[*v1.Pod] { return client.For(m, core.Pods) }

// CreatePod makes a pod from the YAML of its spec, bound to node n1.
func CreatePod(t *testing.T, m *API, name, spec string) *v1.Pod {
	t.Helper()
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	if err := yaml.UnmarshalStrict([]byte(spec), &pod.Spec); err != nil {
		t.Fatal(err)
	}
	pod.Spec.NodeName = "n1"
	created, err := Pods(m).Create(t.Context(), pod)
	if err != nil {
		t.Fatal(err)
	}
	return created
}

// GetPod returns a pod of namespace default; nil: it is not there.
func GetPod(t *testing.T, m *API, name string) *v1.Pod {
	t.Helper()
	pod, err := Pods(m).Get(t.Context(), "default", name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

// DeletePod deletes one, with a grace period in seconds.
func DeletePod(t *testing.T, m *API, name string, grace int64) {
	t.Helper()
	if err := Pods(m).Delete(t.Context(), "default", name, metav1.DeleteOptions{GracePeriodSeconds: &grace}); err != nil {
		t.Fatal(err)
	}
}

// RefuseWith has f asked before every request.
func (m *API) RefuseWith(f func(*client.Request) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.refuse = f
}
