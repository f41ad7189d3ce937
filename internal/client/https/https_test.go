package https_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/client/https"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/test/wait"
)

func reaches(t *testing.T, c *cache.Cache, rev int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	if err := c.WaitRev(ctx, rev); err != nil {
		t.Fatalf("the cache, which is at %d, does not reach %d: %v", c.Rev(), rev, err)
	}
}

// envelope is an object as protobuf.
func envelope(t *testing.T, apiVersion, kind string, raw []byte) []byte {
	t.Helper()
	u := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: apiVersion, Kind: kind}, Raw: raw}
	data, err := u.Marshal()
	if err != nil {
		t.Error(err)
	}
	return append([]byte("k8s\x00"), data...)
}

// say answers with a list of config maps.
func say(t *testing.T, w http.ResponseWriter, list *corev1.ConfigMapList) {
	t.Helper()
	raw, err := list.Marshal()
	if err != nil {
		t.Error(err)
	}
	w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
	_, _ = w.Write(envelope(t, "v1", "ConfigMapList", raw))
}

// tell sends an event of a watch.
func tell(t *testing.T, w http.ResponseWriter, kind string, cm *corev1.ConfigMap) {
	t.Helper()
	raw, err := cm.Marshal()
	if err != nil {
		t.Error(err)
	}
	e := metav1.WatchEvent{Type: kind, Object: runtime.RawExtension{Raw: envelope(t, "v1", "ConfigMap", raw)}}
	frame, err := e.Marshal()
	if err != nil {
		t.Error(err)
	}
	_, _ = w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...))
	w.(http.Flusher).Flush()
}

func at(name string, rev int) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: "u", ResourceVersion: fmt.Sprint(rev)}}
}

// TestWatchThatBreaksWithinARevisionLosesNothing: objects that go in one
// revision, as expired events do, are told one after the other.
func TestWatchThatBreaksWithinARevisionLosesNothing(t *testing.T) {
	t.Parallel()
	var asked atomic.Value
	var watches atomic.Int32
	o := fake(t, func(w http.ResponseWriter, r *http.Request) {
		if !r.URL.Query().Has("watch") {
			say(t, w, &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "10"}, Items: []corev1.ConfigMap{*at("a", 5), *at("b", 6), *at("c", 7)}})
			return
		}
		w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf;stream=watch")
		switch watches.Add(1) {
		case 1:
			tell(t, w, "MODIFIED", at("c", 11))
			tell(t, w, "DELETED", at("a", 12))
			panic(http.ErrAbortHandler)
		case 2:
			asked.Store(r.URL.Query().Get("resourceVersion"))
			tell(t, w, "DELETED", at("a", 12))
			tell(t, w, "DELETED", at("b", 12))
			tell(t, w, "BOOKMARK", at("", 20))
			<-r.Context().Done()
		}
	})
	c := run(t, o).Cache(core.ConfigMaps.Def, "")
	<-c.Synced()
	cu, err := c.Cursor(cache.CursorOptions{After: 10})
	if err != nil {
		t.Fatal(err)
	}
	defer cu.Close()
	reaches(t, c, 20)
	if got := asked.Load(); got != "11" {
		t.Errorf("resumed after %v, want 11: revision 12 may not be complete", got)
	}
	events, err := cu.Next()
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	for i := range events {
		told = append(told, fmt.Sprintf("%s %s %d", events[i].Type, events[i].Item.Key, events[i].Rev()))
	}
	if want := []string{"MODIFIED default/c 11", "DELETED default/a 12", "DELETED default/b 12"}; !slices.Equal(told, want) {
		t.Errorf("got %q, want %q", told, want)
	}
}

func TestListWhosePagesExpireIsReadAtOnce(t *testing.T) {
	t.Parallel()
	o := fake(t, func(w http.ResponseWriter, r *http.Request) {
		switch q := r.URL.Query(); {
		case q.Has("watch"):
			<-r.Context().Done()
		case q.Has("continue"):
			status := apierrors.NewResourceExpired("too old").ErrStatus
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(int(status.Code))
			status.APIVersion, status.Kind = "v1", "Status"
			_ = json.NewEncoder(w).Encode(status)
		case q.Get("limit") != "":
			say(t, w, &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "10", Continue: "more"}, Items: []corev1.ConfigMap{*at("a", 5)}})
		default:
			say(t, w, &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "12"}, Items: []corev1.ConfigMap{*at("a", 5), *at("b", 6)}})
		}
	})
	c := run(t, o).Cache(core.ConfigMaps.Def, "")
	reaches(t, c, 12)
	if c.Len() != 2 {
		t.Errorf("got %d objects, want 2", c.Len())
	}
}

func TestServerThatHasTooMuchToDoIsAskedAgainWhenItSays(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	o := fake(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if asked.Add(1) <= 2 {
			w.Header().Set("Retry-After", []string{"", "1", "0"}[asked.Load()])
			http.Error(w, "Too many requests, please try again later.", http.StatusTooManyRequests)
			return
		}
		w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
		_, _ = w.Write(body) // as it was sent, once more
	})
	api := run(t, o)
	began := time.Now()
	made, err := client.For(api, core.ConfigMaps).Create(t.Context(), at("a", 7))
	if err != nil || made.Name != "a" || asked.Load() != 3 || time.Since(began) < time.Second {
		t.Errorf("got %v, %v after %d requests and %s, want success at the third, after a second", made, err, asked.Load(), time.Since(began))
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(api.Metrics()...)
	found, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	answers := map[string]float64{} // by code
	for _, f := range found {
		for _, m := range f.Metric {
			if f.GetName() == "rest_client_requests_total" {
				answers[m.Label[0].GetValue()] += m.GetCounter().GetValue()
			}
		}
	}
	if !maps.Equal(answers, map[string]float64{"429": 2, "200": 1}) {
		t.Errorf("counted %v, want two refusals and a success", answers)
	}
}

func TestServerThatStaysOverloadedIsNotWaitedForBeyondTheDeadline(t *testing.T) {
	t.Parallel()
	o := fake(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "3600")
		http.Error(w, "Too many requests, please try again later.", http.StatusTooManyRequests)
	})
	_, err := client.For(run(t, o), core.ConfigMaps).Get(t.Context(), "default", "a")
	var status apierrors.APIStatus
	if !apierrors.IsTooManyRequests(err) || !errors.As(err, &status) || status.Status().Details.RetryAfterSeconds != 3600 {
		t.Errorf("got %v, want that there are too many requests, for an hour", err)
	}
}

func TestEvictionThatABudgetForbidsIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	o := fake(t, func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 10)
		err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: policyv1.DisruptionBudgetCause, Message: "no"}}
		err.ErrStatus.APIVersion, err.ErrStatus.Kind = "v1", "Status"
		w.Header().Set("Retry-After", "10")
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusTooManyRequests)
		_ = json.NewEncoder(w).Encode(err.ErrStatus)
	})
	_, err := client.For(run(t, o), core.Pods).Post(t.Context(), "default", "p", "eviction", &policyv1.Eviction{})
	if !apierrors.IsTooManyRequests(err) || !apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause) || asked.Load() != 1 {
		t.Errorf("got %v after %d requests, want the budget's refusal after one", err, asked.Load())
	}
}

func TestOnlyReadsAreSentAgainWhenTheConnectionBreaks(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	o := fake(t, func(http.ResponseWriter, *http.Request) {
		asked.Add(1)
		panic(http.ErrAbortHandler) // whatever was asked for may have been done
	})
	maps := client.For(run(t, o), core.ConfigMaps)
	for _, c := range []struct {
		what string
		do   func() error
		want func(n int32) bool
	}{
		{"get", func() error { _, err := maps.Get(t.Context(), "default", "a"); return err }, func(n int32) bool { return n >= 4 }},
		{"create", func() error { _, err := maps.Create(t.Context(), at("a", 0)); return err }, func(n int32) bool { return n == 1 }},
		{"update", func() error { _, err := maps.Update(t.Context(), at("a", 0)); return err }, func(n int32) bool { return n == 1 }},
		{"delete", func() error { return maps.Delete(t.Context(), "default", "a", metav1.DeleteOptions{}) }, func(n int32) bool { return n == 1 }},
	} {
		asked.Store(0)
		err := c.do()
		if n := asked.Load(); err == nil || !c.want(n) || !strings.HasPrefix(err.Error(), c.what+" configmaps a: ") {
			t.Errorf("%s: got %v after %d requests", c.what, err, n)
		}
	}
}

func TestWriteThatNeverLeftIsSentAgain(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	var l line
	remote := b.remote(&l)
	l.cut(true)
	l.mendAfter(2)
	made, err := client.For(remote, core.ConfigMaps).Create(b.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}})
	if err != nil || made.UID == "" {
		t.Errorf("got %v, %v", made, err)
	}
	l.cut(true)
	if _, err := client.For(remote, core.ConfigMaps).Get(b.ctx, "default", "a"); !errors.Is(err, errDown) {
		t.Errorf("with no line: got %v", err)
	}
}

func TestRequestWithoutAnAnswerEndsInTime(t *testing.T) {
	t.Parallel()
	o := fake(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	o.RequestTimeout = 20 * time.Millisecond
	_, err := client.For(run(t, o), core.ConfigMaps).Get(t.Context(), "default", "a")
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "the API server did not answer in time") {
		t.Errorf("got %v", err)
	}
}

// TestScopeOfOneObjectIsAskedForWhereAgentsMay: the authorizer of nodes reads
// the namespace from the path and the name from a lone field selector.
func TestScopeOfOneObjectIsAskedForWhereAgentsMay(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 10) // more than there can be
	o := fake(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("watch") {
			asked <- r.URL.Path + " " + r.URL.Query().Get("fieldSelector")
			<-r.Context().Done()
			return
		}
		say(t, w, &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "10"}})
	})
	tr := run(t, o)
	for scope, want := range map[string]string{
		"metadata.namespace=a,metadata.name=b": "/api/v1/namespaces/a/configmaps metadata.name=b",
		"":                                     "/api/v1/configmaps ",
	} {
		tr.Cache(core.ConfigMaps.Def, scope)
		if got := <-asked; got != want {
			t.Errorf("%q: got %q, want %q", scope, got, want)
		}
	}
}

// TestKindsWithoutProtobufAreReadAsJSON follows custom resources.
func TestKindsWithoutProtobufAreReadAsJSON(t *testing.T) {
	t.Parallel()
	tabs := resource.Define(resource.Spec[*unstructured.Unstructured]{
		Names: resource.Names{
			Group: "stable.example.com", Version: "v1", Kind: "CronTab", Plural: "crontabs",
			Namespaced: true, StoragePrefix: "stable.example.com/crontabs",
		},
	})
	const item = `{"apiVersion":"stable.example.com/v1","kind":"CronTab","metadata":{"name":"%s","namespace":"default","resourceVersion":"%d"},"spec":{"n":3}}`
	o := fake(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept") != "application/json" {
			t.Errorf("accepts %q", r.Header.Get("Accept"))
		}
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Method == http.MethodPost:
			body, _ := io.ReadAll(r.Body)
			_, _ = w.Write(body)
		case !r.URL.Query().Has("watch"):
			fmt.Fprintf(w, `{"kind":"CronTabList","apiVersion":"stable.example.com/v1","metadata":{"resourceVersion":"10"},"items":[{"metadata":{"name":"a","namespace":"default","resourceVersion":"5"},"spec":{"n":3}}]}`)
		default:
			fmt.Fprintf(w, `{"type":"ADDED","object":`+item+"}\n"+`{"type":"DELETED","object":`+item+"}\n", "b", 11, "a", 12)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}
	})
	tr := run(t, o)
	made, err := client.For(tr, tabs).Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": "x", "namespace": "default"}, "spec": map[string]any{"n": int64(4)},
	}})
	if err != nil || made.GetKind() != "CronTab" || made.GetName() != "x" {
		t.Errorf("created: got %v, %v", made, err)
	}
	list, err := client.For(tr, tabs).List(t.Context(), "default", metav1.ListOptions{})
	if err != nil || len(list) != 1 || list[0].GetKind() != "CronTab" || list[0].Object["spec"].(map[string]any)["n"] != int64(3) {
		t.Errorf("list: got %v, %v", list, err)
	}
	c := client.Cached(tr, tabs, "")
	reaches(t, c.Cache, 12)
	if got, ok := c.Get("default", "b"); !ok || got.GetAPIVersion() != "stable.example.com/v1" || c.Len() != 1 {
		t.Errorf("cache: got %v of %d", got, c.Len())
	}
}

func TestBadOptionsAreRefused(t *testing.T) {
	for what, o := range map[string]https.Options{
		"no server":    {},
		"no TLS":       {Servers: []string{"http://127.0.0.1:8080"}},
		"no host":      {Servers: []string{"https://"}},
		"no authority": {Servers: []string{"https://127.0.0.1:6443"}, CA: []byte("nothing")},
	} {
		if _, err := https.New(o); err == nil {
			t.Errorf("%s: got no error", what)
		}
	}
}

// TestScopeThatIsRefusedIsAskedForUntilItIsReleased: a node may not see any more what only
// pods that are gone have named.
func TestScopeThatIsRefusedIsAskedForUntilItIsReleased(t *testing.T) {
	t.Parallel()
	var a, b atomic.Int32
	o := fake(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("fieldSelector") == "metadata.name=a" {
			a.Add(1)
		} else {
			b.Add(1)
		}
		status := apierrors.NewForbidden(core.Secrets.GroupResource(), "", errors.New("no pod of the node names it")).ErrStatus
		status.APIVersion, status.Kind = "v1", "Status"
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(int(status.Code))
		_ = json.NewEncoder(w).Encode(status)
	})
	tr := run(t, o)
	_, releaseA := tr.Hold(core.Secrets.Def, "metadata.namespace=default,metadata.name=a")
	_, releaseB := tr.Hold(core.Secrets.Def, "metadata.namespace=default,metadata.name=b")
	defer releaseB()
	asked := func(n *atomic.Int32, times int32) {
		t.Helper()
		least := n.Load() + times
		wait.Until(t, func() error {
			if got := n.Load(); got < least {
				return fmt.Errorf("asked %d times, want %d", got, least)
			}
			return nil
		})
	}
	asked(&a, 2)
	releaseA()
	before := a.Load()
	asked(&b, 4)
	if after := a.Load(); after > before+1 {
		t.Errorf("asked %d times for what has been released", after-before)
	}
}
