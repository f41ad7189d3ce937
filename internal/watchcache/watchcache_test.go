package watchcache

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/store/mem"
	"github.com/kemudi/kemudi/internal/task"
)

// The resources of these tests: one with namespaces and a storage prefix of
// two parts, one without namespaces.
var (
	services = resource.Define(resource.Spec[*corev1.Service]{
		Names: resource.Names{Version: "v1", Kind: "Service", Plural: "services", Namespaced: true, StoragePrefix: "services/specs"},
		Default: func(s *corev1.Service) {
			if s.Spec.Type == "" {
				s.Spec.Type = corev1.ServiceTypeClusterIP
			}
		},
	})
	roles = resource.Define(resource.Spec[*rbacv1.ClusterRole]{
		Names: resource.Names{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole", Plural: "clusterroles"},
	})
)

func service(name, color string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, Labels: map[string]string{"color": color}},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort},
	}
}

// start runs a set until the test ends and waits for its state.
func start(t testing.TB, st store.Store, o Options) *Set {
	t.Helper()
	o.Store = st
	if o.Defs == nil {
		o.Defs = []*resource.Def{services.Def, roles.Def}
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	g := task.NewGroup(ctx)
	g.Go("watchcache", s.Run)
	t.Cleanup(func() {
		cancel()
		if err := g.Wait(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	<-s.Synced()
	return s
}

func write(t testing.TB, st store.Store, ops ...store.Op) int64 {
	t.Helper()
	r, err := st.Txn(t.Context(), store.Txn{Ops: ops})
	if err != nil || !r.OK {
		t.Fatalf("write: %+v, %v", r, err)
	}
	return r.Rev
}

func encode(t testing.TB, def *resource.Def, obj resource.Object) store.Op {
	t.Helper()
	value, err := Encode(def, obj)
	if err != nil {
		t.Fatal(err)
	}
	return store.Op{Key: def.Key(obj.GetNamespace(), obj.GetName()), Value: value}
}

// get waits until the set has taken in rev and returns the object.
func get(t testing.TB, s *Set, def *resource.Def, key string, rev int64) *cache.Item {
	t.Helper()
	if err := s.Cache(def).WaitRev(t.Context(), rev); err != nil {
		t.Fatal(err)
	}
	return s.Cache(def).Get(key)
}

func TestCachesShowStateAndChanges(t *testing.T) {
	st := mem.New(mem.Options{})
	first := write(t, st,
		encode(t, services.Def, service("old", "red")),
		encode(t, roles.Def, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "admin"}}),
		store.Op{Key: "/registry/unknown/x", Value: []byte("whatever")},
		store.Op{Key: "/registry/services/endpoints/a/x", Value: []byte("whatever")},
	)
	s := start(t, st, Options{})
	if it := s.Cache(roles.Def).Get("admin"); it == nil || it.Rev != first || it.Object.GetResourceVersion() != fmt.Sprint(first) {
		t.Errorf("first state: got %+v, want admin at %d", it, first)
	}
	cu, err := s.Cache(services.Def).Cursor(cache.CursorOptions{After: first})
	if err != nil {
		t.Fatal(err)
	}
	defer cu.Close()
	second := write(t, st, encode(t, services.Def, service("new", "blue")), encode(t, services.Def, service("old", "blue")))
	third := write(t, st, store.Op{Key: services.Key("a", "old")})
	if it := get(t, s, services.Def, "a/old", third); it != nil {
		t.Errorf("deleted object: got %+v", it)
	}
	it := get(t, s, services.Def, "a/new", second)
	svc, ok := it.Object.(*corev1.Service)
	if !ok || svc.Labels["color"] != "blue" || svc.Spec.Type != corev1.ServiceTypeNodePort || svc.Kind != "" {
		t.Errorf("new object: got %+v", it.Object)
	}
	events, err := cu.Next()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range events {
		if e.Item.Object.GetResourceVersion() != strconv.FormatInt(e.Rev(), 10) {
			t.Errorf("%s of %s at %d has resourceVersion %s", e.Type, e.Item.Key, e.Rev(), e.Item.Object.GetResourceVersion())
		}
		got = append(got, fmt.Sprintf("%s %s %s@%d", e.Type, e.Item.Key, e.Item.Object.GetLabels()["color"], e.Rev()))
	}
	want := fmt.Sprintf("[ADDED a/new blue@%d MODIFIED a/old blue@%d DELETED a/old blue@%d]", second, second, third)
	if fmt.Sprint(got) != want {
		t.Errorf("events: got %s, want %s", got, want)
	}
}

func TestObjectIsCreatedAndDeletedInOneBatch(t *testing.T) {
	st := mem.New(mem.Options{})
	s := start(t, st, Options{})
	cu, err := s.Cache(services.Def).Cursor(cache.CursorOptions{After: s.Progress().Rev()})
	if err != nil {
		t.Fatal(err)
	}
	defer cu.Close()
	value := encode(t, services.Def, service("x", "red"))
	key := value.Key
	err = s.take([]store.Change{
		{KV: store.KV{Key: key, Value: value.Value, Rev: 101}},
		{KV: store.KV{Key: key, Rev: 102}},
		{KV: store.KV{Key: key, Value: value.Value, Rev: 103}},
		{KV: store.KV{Key: services.Key("a", "never"), Rev: 104}},
	}, 110)
	if err != nil {
		t.Fatal(err)
	}
	events, err := cu.Next()
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, e := range events {
		got += fmt.Sprintf("%s@%s ", e.Type, e.Item.Object.GetResourceVersion())
	}
	if want := "ADDED@101 DELETED@102 ADDED@103 "; got != want || cu.Rev() != 110 {
		t.Errorf("got %sup to %d, want %s", got, cu.Rev(), want)
	}
}

func TestHandedOverObjectIsUsedForItsBytesOnly(t *testing.T) {
	st := mem.New(mem.Options{})
	s := start(t, st, Options{})
	mine := service("x", "red")
	op := encode(t, services.Def, mine)
	at := s.Handoff(services.Def, op.Key, op.Value, mine)
	rev := write(t, st, store.Op{Key: op.Key, Value: bytes.Clone(op.Value)})
	it := get(t, s, services.Def, "a/x", rev)
	if it.Object != resource.Object(mine) || it.Object.GetResourceVersion() != fmt.Sprint(rev) {
		t.Errorf("object handed over was not used, or is at %s, want %d", it.Object.GetResourceVersion(), rev)
	}
	if at(rev) != it {
		t.Error("the writer has another Item than the cache")
	}
	if other := at(rev + 1); other == it || other.Object.GetResourceVersion() != fmt.Sprint(rev+1) || it.Rev != rev {
		t.Errorf("Item at revision %d: got that of %s", rev+1, other.Object.GetResourceVersion())
	}
	lost := service("x", "blue")
	lostOp := encode(t, services.Def, lost)
	s.Handoff(services.Def, lostOp.Key, lostOp.Value, lost) // and the write fails
	rev = write(t, st, encode(t, services.Def, service("x", "green")))
	if got := get(t, s, services.Def, "a/x", rev).Object.GetLabels()["color"]; got != "green" {
		t.Errorf("write by another: got %s, want green", got)
	}
	rev = write(t, st, op)
	if it := get(t, s, services.Def, "a/x", rev); it.Object == resource.Object(mine) {
		t.Error("object handed over was used twice")
	}
}

func TestFailedWritesDoNotFillTheMemory(t *testing.T) {
	var h handoffs
	for i := range 3 * handoffMax {
		h.put(fmt.Sprint(i), &handoff{})
	}
	if n := len(h.mu.byKey); n > handoffMax {
		t.Errorf("kept %d, want at most %d", n, handoffMax)
	}
}

func TestUnreadableValueHidesOnlyItself(t *testing.T) {
	var log bytes.Buffer
	st := mem.New(mem.Options{})
	bad := services.Key("a", "bad")
	write(t, st, store.Op{Key: bad, Value: []byte("k8s\x00nonsense")}, encode(t, services.Def, service("good", "red")))
	s := start(t, st, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if s.Cache(services.Def).Len() != 1 {
		t.Errorf("got %d services, want the good one", s.Cache(services.Def).Len())
	}
	for _, value := range []string{"k8s\x00more nonsense", "{}", "neither", `{"apiVersion":"v2","kind":"Service"}`, `{"apiVersion":"v1","kind":"Pod"}`} {
		rev := write(t, st, store.Op{Key: bad, Value: []byte(value)})
		if it := get(t, s, services.Def, "a/bad", rev); it != nil {
			t.Errorf("%q: was read as %+v", value, it.Object)
		}
	}
	if got := log.String(); !strings.Contains(got, "key="+bad) {
		t.Errorf("the log does not name %s:\n%s", bad, got)
	}
	rev := write(t, st, encode(t, services.Def, service("bad", "mended")))
	if it := get(t, s, services.Def, "a/bad", rev); it == nil {
		t.Error("mended: it is still not there")
	}
	write(t, st, store.Op{Key: bad, Value: []byte("broken again")})
	rev = write(t, st, store.Op{Key: bad})
	if it := get(t, s, services.Def, "a/bad", rev); it != nil {
		t.Errorf("deleted: got %v", it)
	}
	if n := strings.Count(log.String(), "cannot be read"); n != 2 {
		t.Errorf("logged %d times, want once for each time it broke:\n%s", n, log.String())
	}
}

// interrupted is a store whose feeds can be made to fail.
type interrupted struct {
	store.Store
	mu struct {
		sync.Mutex
		cancel context.CancelCauseFunc
		hold   chan struct{} // new feeds wait until it is closed
	}
}

var errInterrupted = errors.New("interrupted")

func (i *interrupted) Watch(ctx context.Context, prefix string, after int64, fn func([]store.Change, int64) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	i.mu.Lock()
	i.mu.cancel = cancel
	hold := i.mu.hold
	i.mu.Unlock()
	if hold != nil {
		<-hold
	}
	return i.Store.Watch(ctx, prefix, after, fn)
}

// interrupt ends the feed; the next one begins when resume is called.
func (i *interrupted) interrupt() (resume func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	hold := make(chan struct{})
	i.mu.hold = hold
	i.mu.cancel(errInterrupted)
	return func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.mu.hold = nil
		close(hold)
	}
}

func TestFeedResumesAndListsAgainAfterCompaction(t *testing.T) {
	for _, compact := range []bool{false, true} {
		t.Run(fmt.Sprintf("compacted %t", compact), func(t *testing.T) {
			st := &interrupted{Store: mem.New(mem.Options{})}
			write(t, st, encode(t, services.Def, service("kept", "red")), encode(t, services.Def, service("gone", "red")))
			s := start(t, st, Options{})
			rev := write(t, st, encode(t, services.Def, service("seen", "red")))
			get(t, s, services.Def, "a/seen", rev)
			cu, err := s.Cache(services.Def).Cursor(cache.CursorOptions{After: rev})
			if err != nil {
				t.Fatal(err)
			}
			defer cu.Close()
			resume := st.interrupt()
			write(t, st, encode(t, services.Def, service("short", "red")))
			write(t, st, store.Op{Key: services.Key("a", "short")}, store.Op{Key: services.Key("a", "gone")})
			rev = write(t, st, encode(t, services.Def, service("new", "red")))
			if compact {
				if err := st.Compact(t.Context(), rev); err != nil {
					t.Fatal(err)
				}
			}
			resume()
			if it := get(t, s, services.Def, "a/new", rev); it == nil {
				t.Error("what was written during the interruption is missing")
			}
			events, err := cu.Next()
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]string{}
			for _, e := range events {
				got[e.Item.Key] += string(e.Type) + " "
			}
			want := map[string]string{"a/new": "ADDED ", "a/gone": "DELETED "}
			if !compact {
				want["a/short"] = "ADDED DELETED "
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("events: got %v, want %v", got, want)
			}
		})
	}
}

func TestWhatIsOfNoResourceIsToldBeforeItCanBeWaitedFor(t *testing.T) {
	st := &interrupted{Store: mem.New(mem.Options{})}
	var mu sync.Mutex
	var told []string
	var missed int64
	s := start(t, st, Options{
		Others: func(changes []store.Change, _ int64) {
			mu.Lock()
			defer mu.Unlock()
			for _, c := range changes {
				told = append(told, fmt.Sprintf("%s=%s", c.Key, c.Value))
			}
		},
		Missed: func(rev int64) {
			mu.Lock()
			defer mu.Unlock()
			missed = rev
		},
	})
	now := func(rev int64) (string, int64) {
		t.Helper()
		if err := s.Progress().Wait(t.Context(), rev); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		defer mu.Unlock()
		return strings.Join(told, " "), missed
	}
	put := func(key, value string) store.Op {
		op := store.Op{Key: key}
		if value != "" {
			op.Value = []byte(value)
		}
		return op
	}
	write(t, st, put("/registry/own/a", "1"), encode(t, services.Def, service("x", "red")), put("/elsewhere/a", "1"))
	rev := write(t, st, put("/registry/own/a", ""))
	if got, _ := now(rev); got != "/registry/own/a=1 /registry/own/a=" {
		t.Errorf("told of %s", got)
	}
	resume := st.interrupt()
	rev = write(t, st, put("/registry/own/b", "1"))
	if err := st.Compact(t.Context(), rev); err != nil {
		t.Fatal(err)
	}
	resume()
	if got, upTo := now(rev); strings.Contains(got, "/b") || upTo != rev {
		t.Errorf("told of %s, changes up to %d were missed; want that what was forgotten, up to %d, was", got, upTo, rev)
	}
}

func TestResourceIsAddedWhileItIsWritten(t *testing.T) {
	st := mem.New(mem.Options{})
	s := start(t, st, Options{Defs: []*resource.Def{roles.Def}})
	if s.Cache(services.Def) != nil {
		t.Error("resource that was not asked for is cached")
	}
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 200 {
				name := fmt.Sprintf("%d-%d", w, i%20)
				op := encode(t, services.Def, service(name, fmt.Sprint(i)))
				if i%3 == 2 {
					op.Value = nil
				}
				write(t, st, op)
			}
		})
	}
	added, err := s.Add(t.Context(), services.Def)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Add(t.Context(), services.Def); err == nil {
		t.Error("resource was added twice")
	}
	wg.Wait()
	page, err := st.List(t.Context(), services.Key("", ""), store.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := added.WaitRev(t.Context(), page.Rev); err != nil {
		t.Fatal(err)
	}
	if added.Len() != len(page.KVs) {
		t.Errorf("got %d services, want %d", added.Len(), len(page.KVs))
	}
	for _, kv := range page.KVs {
		if it := added.Get(strings.TrimPrefix(kv.Key, services.Key("", ""))); it == nil || it.Rev != kv.Rev {
			t.Errorf("%s: got %+v, want revision %d", kv.Key, it, kv.Rev)
		}
	}
	s.Remove(services.Def)
	if s.Cache(services.Def) != nil {
		t.Error("removed resource is still cached")
	}
}

func TestFreshWaitsForAllThatWasWritten(t *testing.T) {
	st := mem.New(mem.Options{})
	s := start(t, st, Options{})
	for i := range 100 {
		name := fmt.Sprint(i)
		write(t, st, encode(t, services.Def, service(name, "red")))
		if err := s.Fresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s.Cache(services.Def).Get("a/"+name) == nil {
			t.Errorf("service %d is not there", i)
		}
	}
}

func TestTwoResourcesCannotShareAPrefix(t *testing.T) {
	other := resource.Define(resource.Spec[*corev1.Service]{Names: resource.Names{Group: "x", Version: "v1", Kind: "Service", Plural: "services", StoragePrefix: "services/specs"}})
	if _, err := New(Options{Store: mem.New(mem.Options{}), Defs: []*resource.Def{services.Def, other.Def}}); err == nil {
		t.Error("got no error")
	}
}

func TestConcurrentWritersSeeTheirWrites(t *testing.T) {
	st := mem.New(mem.Options{})
	s := start(t, st, Options{})
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 100 {
				obj := service(fmt.Sprintf("%d", w), fmt.Sprint(i))
				op := encode(t, services.Def, obj)
				s.Handoff(services.Def, op.Key, op.Value, obj)
				rev := write(t, st, op)
				it := get(t, s, services.Def, fmt.Sprintf("a/%d", w), rev)
				if it.Rev != rev || it.Object.GetLabels()["color"] != fmt.Sprint(i) {
					t.Errorf("writer %d: got %s at %d, want %d at %d", w, it.Object.GetLabels()["color"], it.Rev, i, rev)
				}
			}
		})
	}
	wg.Wait()
}
