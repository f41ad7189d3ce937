package plane_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/apiserver"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/plane"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/sim"
	"github.com/kemudi/kemudi/internal/watchcache"
)

// asAdmin lets everybody do everything.
func asAdmin(o *apiserver.Options, _ *watchcache.Set) error {
	o.Authenticator = authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
		return &authenticator.Response{User: &user.DefaultInfo{Name: "test", Groups: []string{user.SystemPrivilegedGroup}}}, true, nil
	})
	return nil
}

// newGadgets is a kind that comes and goes.
func newGadgets() *resource.Resource[*corev1.ConfigMap] {
	return resource.Define(resource.Spec[*corev1.ConfigMap]{
		Names:     resource.Names{Group: "example.com", Version: "v1", Kind: "Gadget", Plural: "gadgets", Namespaced: true},
		Untracked: true, // the libraries know no such kind
	})
}

func TestKindComesAndGoesOnARunningServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := sim.Plane(t, plane.Options{Serving: asAdmin})
		api, gadgets := p.Admin(), newGadgets()
		secrets, namespaces, things := client.For(api, core.Secrets), client.For(api, core.Namespaces), client.For(api, gadgets)
		secret := func(name string, owners ...metav1.OwnerReference) *corev1.Secret {
			t.Helper()
			s, err := secrets.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, OwnerReferences: owners}})
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		gadget := func(namespace, name string, owners ...metav1.OwnerReference) *corev1.ConfigMap {
			t.Helper()
			g, err := things.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, OwnerReferences: owners}})
			if err != nil {
				t.Fatal(err)
			}
			return g
		}
		there := func(obj any, err error) bool {
			t.Helper()
			if err != nil && !apierrors.IsNotFound(err) {
				t.Errorf("get: %v", err)
			}
			return err == nil
		}
		discovered := func() bool {
			answer := httptest.NewRecorder()
			p.Server().Handler().ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/apis/example.com/v1", nil))
			return answer.Code == http.StatusOK && strings.Contains(answer.Body.String(), `"gadgets"`)
		}
		// Its owner is of a kind that is not known: nobody may say that it is gone.
		secret("waits", metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Gadget", Name: "never", UID: "was"})
		time.Sleep(10 * time.Minute)
		before := sim.Goroutines(t)
		if discovered() || !there(secrets.Get(t.Context(), "default", "waits")) {
			t.Fatal("before the kind is there: it is served, or what it owns is gone")
		}
		for round := range 2 {
			if err := p.AddKind(t.Context(), gadgets.Def); err != nil {
				t.Fatal(err)
			}
			if !discovered() {
				t.Errorf("round %d: the kind is not discovered", round)
			}
			time.Sleep(10 * time.Minute)
			if there(secrets.Get(t.Context(), "default", "waits")) {
				t.Errorf("round %d: a secret whose owner never was is there", round)
			}
			if round == 1 && !there(things.Get(t.Context(), "default", "stays")) {
				t.Errorf("the objects of the kind are not back with it")
			}
			owner := secret("owner")
			gadget("default", "dependent", metav1.OwnerReference{APIVersion: "v1", Kind: "Secret", Name: owner.Name, UID: owner.UID})
			by := gadget("default", "by")
			secret("dependent", metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Gadget", Name: by.Name, UID: by.UID})
			if _, err := namespaces.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "goes"}}); err != nil {
				t.Fatal(err)
			}
			gadget("goes", "content")
			for _, err := range []error{
				secrets.Delete(t.Context(), "default", owner.Name, metav1.DeleteOptions{}),
				things.Delete(t.Context(), "default", by.Name, metav1.DeleteOptions{}),
				namespaces.Delete(t.Context(), "", "goes", metav1.DeleteOptions{}),
			} {
				if err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(10 * time.Minute)
			if there(things.Get(t.Context(), "default", "dependent")) || there(secrets.Get(t.Context(), "default", "dependent")) {
				t.Errorf("round %d: the owner is gone, its dependents are not", round)
			}
			if there(namespaces.Get(t.Context(), "", "goes")) {
				t.Errorf("round %d: the namespace is not emptied of the kind", round)
			}
			if round == 0 {
				gadget("default", "stays")
			}
			p.RemoveKind(gadgets.Def)
			secret("waits", metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Gadget", Name: "never", UID: "was"})
			time.Sleep(10 * time.Minute)
			if discovered() || !there(secrets.Get(t.Context(), "default", "waits")) {
				t.Errorf("round %d: after the kind has gone: it is served, or what it owns is gone", round)
			}
			if after := sim.Goroutines(t); after != before {
				t.Errorf("round %d: got %d goroutines after the kind came and went, want the %d from before", round, after, before)
			}
		}
	})
}
