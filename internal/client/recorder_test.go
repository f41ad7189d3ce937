package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kemudi/kemudi/internal/api"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/apiserver"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/store/mem"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/watchcache"
)

// recorded is a recorder on an API server, in a bubble of virtual time.
type recorded struct {
	*testing.T
	client.Transport
	server *apiserver.Server
	r      *client.Recorder
	log    bytes.Buffer

	mu   sync.Mutex
	fail func(r *client.Request) error // instead of the API's answer, if not nil
	sent []string                      // verbs of requests
}

var everybody = &user.DefaultInfo{Name: "admin", Groups: []string{user.SystemPrivilegedGroup}}

// record runs f with a recorder in a bubble.
func record(t *testing.T, f func(b *recorded)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &recorded{T: t}
		st := mem.New(mem.Options{})
		caches, err := watchcache.New(watchcache.Options{Store: st, Defs: api.All()})
		if err != nil {
			t.Fatal(err)
		}
		b.server, err = apiserver.New(apiserver.Options{
			Store: st, Defs: api.All(), Caches: caches,
			Authenticator: authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
				return &authenticator.Response{User: everybody}, true, nil
			}),
		})
		if err != nil {
			t.Fatal(err)
		}
		b.Transport = b.server.As(everybody, "test")
		b.r = client.NewRecorder(b, "machine", slog.New(slog.NewTextHandler(&b.log, nil)))
		g := task.NewGroup(t.Context())
		g.Go("caches", caches.Run)
		g.Go("server", b.server.Run)
		g.Go("recorder", b.r.Run)
		defer func() {
			g.Cancel(context.Canceled)
			if err := g.Wait(); err != nil {
				t.Error(err)
			}
		}()
		f(b)
	})
}

// Do passes a request on, unless the test makes it fail.
func (b *recorded) Do(ctx context.Context, r *client.Request) (runtime.Object, error) {
	b.mu.Lock()
	b.sent = append(b.sent, r.Verb)
	fail := b.fail
	b.mu.Unlock()
	if fail != nil {
		if err := fail(r); err != nil {
			return nil, err
		}
	}
	return b.Transport.Do(ctx, r)
}

// events waits until nothing moves and returns those of a namespace.
func (b *recorded) events(namespace string) []*corev1.Event {
	b.Helper()
	synctest.Wait()
	list, err := client.For(b.Transport, core.Events).List(b.Context(), namespace, metav1.ListOptions{})
	if err != nil {
		b.Fatal(err)
	}
	return list
}

func pod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: "uid-" + "1", ResourceVersion: "7"}}
}

func TestRepetitionsAreCountedInOneEvent(t *testing.T) {
	record(t, func(b *recorded) {
		sink := b.r.For("kubelet")
		began := time.Now()
		for range 5 {
			sink.Event(client.Part{Object: pod("web"), FieldPath: "spec.containers{c}"}, "Warning", "BackOff", "Back-off restarting")
			time.Sleep(20 * time.Minute) // however long ago: the event is still there
			sink.Event(pod("web"), "Normal", "Killing", "Stopping")
		}
		list := b.events("default")
		if len(list) != 2 {
			t.Fatalf("got %d events, want 2: %v", len(list), list)
		}
		e := list[0]
		if e.Reason != "BackOff" {
			e = list[1]
		}
		want := corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "default", Name: "web", UID: "uid-1", ResourceVersion: "7", FieldPath: "spec.containers{c}"}
		if e.InvolvedObject != want {
			t.Errorf("about: got %+v, want %+v", e.InvolvedObject, want)
		}
		if e.Count != 5 || !e.FirstTimestamp.Equal(&metav1.Time{Time: began.Truncate(time.Second)}) || e.LastTimestamp.Sub(began) < 79*time.Minute || e.Type != "Warning" || e.Message != "Back-off restarting" {
			t.Errorf("got %d from %s to %s, %s %q", e.Count, e.FirstTimestamp, e.LastTimestamp, e.Type, e.Message)
		}
		if name := fmt.Sprintf("web.%x", began.UnixNano()); e.Name != name {
			t.Errorf("name: got %s, want %s", e.Name, name)
		}
		if (e.Source != corev1.EventSource{Component: "kubelet", Host: "machine"}) || e.ReportingController != "kubelet" || e.ReportingInstance != "machine" {
			t.Errorf("source: got %+v, %s, %s", e.Source, e.ReportingController, e.ReportingInstance)
		}
	})
}

func TestEventsAreInBothGroups(t *testing.T) {
	record(t, func(b *recorded) {
		for range 3 {
			b.r.For("kubelet").Event(pod("web"), "Normal", "Killing", "Stopping")
		}
		synctest.Wait()
		w := httptest.NewRecorder()
		b.server.Handler().ServeHTTP(w, httptest.NewRequestWithContext(b.Context(), http.MethodGet, "/apis/events.k8s.io/v1/namespaces/default/events", nil))
		var list eventsv1.EventList
		if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil || len(list.Items) != 1 {
			t.Fatalf("got %s, %v", w.Body, err)
		}
		e := list.Items[0]
		if e.Note != "Stopping" || e.Regarding.Name != "web" || e.DeprecatedCount != 3 || e.DeprecatedSource.Component != "kubelet" || e.ReportingController != "kubelet" {
			t.Errorf("got %+v", e)
		}
	})
}

func TestEventHasAnnotationsForPrograms(t *testing.T) {
	record(t, func(b *recorded) {
		for range 2 {
			b.r.For("kubelet").Event(client.Annotated{Object: pod("web"), Annotations: map[string]string{"starved_resource": "memory"}}, "Warning", "Evicted", "low on memory")
		}
		list := b.events("default")
		if len(list) != 1 || list[0].Annotations["starved_resource"] != "memory" || list[0].InvolvedObject.Kind != "Pod" || list[0].InvolvedObject.Name != "web" || list[0].Count != 2 {
			t.Errorf("got %+v", list)
		}
	})
}

func TestEventTellsWhatIsDoneAndForWhom(t *testing.T) {
	record(t, func(b *recorded) {
		b.r.For("default-scheduler").Event(client.Deed{Object: pod("web"), Action: "Preempting", Related: pod("db")}, "Normal", "Preempted", "Preempted")
		b.r.For("default-scheduler").Event(client.Deed{Object: pod("db"), Action: "Binding"}, "Normal", "Scheduled", "Assigned")
		synctest.Wait()
		for _, e := range b.events("default") {
			action, related := "Preempting", "Pod v1 default/db"
			if e.InvolvedObject.Name == "db" {
				action, related = "Binding", ""
			}
			got := ""
			if r := e.Related; r != nil {
				got = fmt.Sprintf("%s %s %s/%s", r.Kind, r.APIVersion, r.Namespace, r.Name)
			}
			if e.Action != action || got != related || e.InvolvedObject.Kind != "Pod" {
				t.Errorf("%s: got action %q, related %q, want %q and %q", e.InvolvedObject.Name, e.Action, got, action, related)
			}
		}
	})
}

func TestManySimilarEventsBecomeOne(t *testing.T) {
	record(t, func(b *recorded) {
		sink := b.r.For("kubelet")
		note := func(from, to int) {
			for i := from; i < to; i++ {
				sink.Event(pod("web"), "Warning", "Unhealthy", fmt.Sprint("probe failed: ", i))
				synctest.Wait()
			}
		}
		note(0, 15)
		single, combined := 0, (*corev1.Event)(nil)
		for _, e := range b.events("default") {
			if strings.HasPrefix(e.Message, "(combined from similar events): ") {
				combined = e
			} else {
				single++
			}
		}
		if single != 9 || combined == nil || combined.Count != 6 || combined.Message != "(combined from similar events): probe failed: 14" {
			t.Errorf("got %d single events and %+v, want 9, and 6 in one", single, combined)
		}
		note(3, 4) // one that was told apart is still counted by itself
		sink.Event(pod("web"), "Warning", "Other", "of another reason")
		sink.Event(pod("other"), "Warning", "Unhealthy", "of another object")
		if got := len(b.events("default")); got != 12 {
			t.Errorf("got %d events, want 12", got)
		}
		time.Sleep(30 * time.Minute) // long after, they are told apart again
		note(100, 102)
		if got := len(b.events("default")); got != 14 {
			t.Errorf("got %d events, want 14", got)
		}
	})
}

func TestObjectThatIsNotedTooOftenIsHeldBack(t *testing.T) {
	record(t, func(b *recorded) {
		sink := b.r.For("kubelet")
		for i := range 40 {
			sink.Event(pod("web"), "Normal", fmt.Sprint("Reason", i), "m")
		}
		if got := len(b.events("default")); got != 25 {
			t.Errorf("at once: got %d events, want 25", got)
		}
		b.r.For("scheduler").Event(pod("web"), "Normal", "Scheduled", "m")
		sink.Event(pod("other"), "Normal", "Reason", "m")
		if got := len(b.events("default")); got != 27 {
			t.Errorf("another component, another object: got %d events, want 27", got)
		}
		time.Sleep(5 * time.Minute)
		sink.Event(pod("web"), "Normal", "Late1", "m")
		sink.Event(pod("web"), "Normal", "Late2", "m")
		if got := len(b.events("default")); got != 28 {
			t.Errorf("five minutes later: got %d events, want one more", got)
		}
	})
}

func TestRepetitionsThatAreHeldBackAreCounted(t *testing.T) {
	record(t, func(b *recorded) {
		sink := b.r.For("kubelet")
		for range 100 {
			sink.Event(pod("web"), "Normal", "Pulling", "m")
		}
		synctest.Wait()
		if n := len(b.sent); n != 25 {
			t.Errorf("got %d writes, want 25", n)
		}
		time.Sleep(5 * time.Minute)
		sink.Event(pod("web"), "Normal", "Pulling", "m")
		list := b.events("default")
		if len(list) != 1 || list[0].Count != 101 {
			t.Errorf("got %v, want one event that counts 101", list)
		}
	})
}

func TestEventThatIsGoneIsMadeAgain(t *testing.T) {
	record(t, func(b *recorded) {
		sink := b.r.For("kubelet")
		sink.Event(pod("web"), "Normal", "Pulling", "m")
		if got := len(b.events("default")); got != 1 {
			t.Fatalf("got %d events", got)
		}
		time.Sleep(3 * time.Hour) // the API keeps events for an hour
		if got := len(b.events("default")); got != 0 {
			t.Fatalf("got %d events after their time", got)
		}
		sink.Event(pod("web"), "Normal", "Pulling", "m")
		if list := b.events("default"); len(list) != 1 || list[0].Count != 2 {
			t.Errorf("got %v, want it again, with its count", list)
		}
	})
}

func TestEventsOfObjectsWithoutANamespaceAreInDefault(t *testing.T) {
	record(t, func(b *recorded) {
		sink := b.r.For("controller")
		sink.Event(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, "Normal", "NodeReady", "m")
		// Names that an event's cannot begin with.
		sink.Event(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "system:node"}}, "Normal", "Changed", "m")
		sink.Event(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: strings.Repeat("n", 250)}}, "Normal", "NodeReady", "m")
		list := b.events("default")
		if len(list) != 3 {
			t.Fatalf("got %d events, want 3; log: %s", len(list), &b.log)
		}
		for _, e := range list {
			if e.InvolvedObject.Kind == "ClusterRole" && (e.InvolvedObject.APIVersion != "rbac.authorization.k8s.io/v1" || strings.Contains(e.Name, ":")) {
				t.Errorf("got %s about %+v", e.Name, e.InvolvedObject)
			}
		}
	})
}

func TestLongMessagesAreCut(t *testing.T) {
	record(t, func(b *recorded) {
		b.r.For("kubelet").Event(pod("web"), "Normal", "Failed", strings.Repeat("é", 1000))
		list := b.events("default")
		if len(list) != 1 || len(list[0].Message) > 1024 || !strings.HasSuffix(list[0].Message, "é ...") {
			t.Errorf("got %v; log: %s", list, &b.log)
		}
	})
}

func TestEventsAreNotLostWhileTheAPICannotBeReached(t *testing.T) {
	record(t, func(b *recorded) {
		tries := 0
		b.fail = func(*client.Request) error {
			if tries++; tries <= 5 {
				return errors.New("connection refused")
			}
			return nil
		}
		b.r.For("kubelet").Event(pod("web"), "Normal", "Pulling", "m")
		b.r.For("kubelet").Event(pod("web"), "Normal", "Pulled", "m")
		time.Sleep(10 * time.Minute)
		if got := len(b.events("default")); got != 2 || b.log.Len() > 0 {
			t.Errorf("got %d events, want 2; log: %s", got, &b.log)
		}
	})
}

func TestEventWhoseAnswerWasLostIsNotDoubled(t *testing.T) {
	record(t, func(b *recorded) {
		lost := false
		b.fail = func(r *client.Request) error {
			if lost {
				return nil
			}
			lost = true
			again := *r
			again.Object = r.Object.DeepCopyObject()
			if _, err := b.Transport.Do(b.Context(), &again); err != nil {
				t.Error(err)
			}
			return errors.New("connection reset")
		}
		b.r.For("kubelet").Event(pod("web"), "Normal", "Pulling", "m")
		time.Sleep(time.Minute)
		if list := b.events("default"); len(list) != 1 || list[0].Count != 1 || b.log.Len() > 0 {
			t.Errorf("got %v; log: %s", list, &b.log)
		}
	})
}

func TestTwoProcessesMayNoteAnObjectAtTheSameTime(t *testing.T) {
	record(t, func(b *recorded) {
		other := client.NewRecorder(b, "elsewhere", slog.New(slog.NewTextHandler(&b.log, nil)))
		ctx, cancel := context.WithCancel(b.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _ = other.Run(ctx) }) // it ends without an error
		for _, reason := range []string{"One", "Two"} {
			b.r.For("kubelet").Event(pod("web"), "Normal", reason, "m")
			other.For("scheduler").Event(pod("web"), "Normal", reason, "m")
		}
		if got := len(b.events("default")); got != 4 || b.log.Len() > 0 {
			t.Errorf("got %d events, want 4; log: %s", got, &b.log)
		}
		cancel()
		wg.Wait()
	})
}

func TestEventThatTheAPIRefusesIsNotTriedAgain(t *testing.T) {
	record(t, func(b *recorded) {
		b.fail = func(*client.Request) error {
			return apierrors.NewForbidden(core.Events.GroupResource(), "e", errors.New("no"))
		}
		b.r.For("kubelet").Event(pod("web"), "Normal", "Pulling", "m")
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(b.sent) != 1 || !strings.Contains(b.log.String(), "write event") {
			t.Errorf("got %d requests; log: %s", len(b.sent), &b.log)
		}
	})
}

func TestEventsOfANamespaceThatGoesAreNotMissed(t *testing.T) {
	record(t, func(b *recorded) {
		b.fail = func(*client.Request) error {
			err := apierrors.NewForbidden(core.Events.GroupResource(), "e", errors.New("it is being terminated"))
			err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
			return err
		}
		b.r.For("kubelet").Event(pod("web"), "Normal", "Killing", "m")
		synctest.Wait()
		b.fail = func(*client.Request) error { return apierrors.NewNotFound(corev1.Resource("namespaces"), "default") }
		b.r.For("kubelet").Event(pod("web"), "Normal", "Killed", "m")
		synctest.Wait()
		if len(b.sent) != 2 || b.log.Len() > 0 {
			t.Errorf("got %d requests; log: %s", len(b.sent), &b.log)
		}
	})
}

func TestNotingNeverBlocks(t *testing.T) {
	r := client.NewRecorder(nowhere{}, "", slog.New(slog.DiscardHandler)) // nobody runs it
	for i := range 5000 {
		r.For("kubelet").Event(pod("web"), "Normal", "Reason", fmt.Sprint(i))
	}
	client.NoEvents.Event(resource.Object(pod("web")), "Normal", "Reason", "m")
}

// nowhere is an API that is not used.
type nowhere struct{ client.Transport }
