package aggregate_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/discovery"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
)

// awaitNamespace waits until it is so of a namespace; nil: it is gone.
func (b *bed) awaitNamespace(name string, so func(ns *corev1.Namespace) bool) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 30*time.Second)
	defer cancel()
	all := client.Cached(b.plane.Admin(), core.Namespaces, "")
	f := all.Follow(cache.FollowOptions{})
	defer f.Close()
	for {
		select {
		case <-f.Ready():
			f.Next()
		case <-ctx.Done():
			ns, _ := all.Get("", name)
			b.t.Fatalf("namespace %s: %+v", name, ns)
		}
		if ns, _ := all.Get("", name); so(ns) {
			return
		}
	}
}

func TestNamespacesGoWithWhatOthersHaveInThem(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	var mu sync.Mutex
	asked, left := []string{}, 1
	b.sample(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if r.URL.Path != "/apis/wardle.example.com/v1alpha1/namespaces/goes/flunders" {
			http.NotFound(w, r)
			return
		}
		asked = append(asked, r.Method+" "+r.Header.Get("X-Remote-User"))
		if r.Method == http.MethodDelete {
			fmt.Fprint(w, `{}`)
			return
		}
		_, _ = io.WriteString(w, `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","items":[`+strings.Repeat(`{"metadata":{"name":"x"}}`, left)+`]}`)
		left = 0
	})
	namespaces := client.For(b.plane.Admin(), core.Namespaces)
	create(b, core.Namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "goes"}})
	if err := client.For(b.plane.Admin(), discovery.EndpointSlices).Delete(t.Context(), "default", "api-1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	b.await("False EndpointsNotFound")
	if err := namespaces.Delete(t.Context(), "", "goes", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	b.awaitNamespace("goes", func(ns *corev1.Namespace) bool {
		return has(ns, corev1.NamespaceDeletionDiscoveryFailure, "DiscoveryFailed", "Discovery failed for some groups, 1 failing: unable to retrieve the complete list of server APIs: wardle.example.com/v1alpha1: stale GroupVersion discovery: wardle.example.com/v1alpha1")
	})
	b.endpoints("api-1", true, podAddress)
	b.await("True Passed")
	b.awaitNamespace("goes", func(ns *corev1.Namespace) bool {
		return has(ns, corev1.NamespaceContentRemaining, "SomeResourcesRemain", "Some resources are remaining: flunders.wardle.example.com has 1 resource instances")
	})
	b.awaitNamespace("goes", func(ns *corev1.Namespace) bool { return ns == nil })
	mu.Lock()
	defer mu.Unlock()
	if len(asked) < 2 || asked[0] != "DELETE system:serviceaccount:kube-system:namespace-controller" || asked[1] != "GET system:serviceaccount:kube-system:namespace-controller" {
		t.Errorf("asked: got %q", asked)
	}
}

// has reports whether a namespace has a condition, which is true for a reason.
func has(ns *corev1.Namespace, kind corev1.NamespaceConditionType, reason, message string) bool {
	if ns == nil {
		return false
	}
	for _, c := range ns.Status.Conditions {
		if c.Type == kind && c.Status == corev1.ConditionTrue && c.Reason == reason && c.Message == message {
			return true
		}
	}
	return false
}

func TestOpenAPIOfOthersIsFoundAndHandedOn(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.sample(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/openapi/v3":
			fmt.Fprint(w, `{"paths":{"apis/wardle.example.com/v1alpha1":{"serverRelativeURL":"/openapi/v3/apis/wardle.example.com/v1alpha1?hash=ABC"},"apis/apps/v1":{"serverRelativeURL":"/evil"}}}`)
		case "/openapi/v3/apis/wardle.example.com/v1alpha1":
			fmt.Fprint(w, `{"openapi":"3.0.0 of `+r.URL.RawQuery+`"}`)
		default:
			http.NotFound(w, r)
		}
	})
	index := b.must(200, "GET /openapi/v3", "")
	if !strings.Contains(index, `"/openapi/v3/apis/wardle.example.com/v1alpha1?hash=ABC"`) || !strings.Contains(index, `"/openapi/v3/apis/apps/v1?hash=`) || strings.Contains(index, "evil") {
		t.Errorf("index: got %s", index)
	}
	if got := b.must(200, "GET /openapi/v3/apis/wardle.example.com/v1alpha1?hash=OLD", ""); got != `{"openapi":"3.0.0 of "}` {
		t.Errorf("document: got %s", got)
	}
	b.must(200, "GET /openapi/v3/apis/apps/v1", "")
}
