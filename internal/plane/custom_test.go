package plane_test

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/custom"
	"github.com/kemudi/kemudi/internal/plane"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/sim"
)

// gears is a kind without a Go type, at a version.
func gears(version string, replaces *resource.Def) *resource.Resource[*custom.Object] {
	return custom.Define(custom.Kind{
		Names:    resource.Names{Group: "example.com", Version: version, Kind: "Gear", Plural: "gears", Namespaced: true},
		Versions: []custom.Version{{Name: "v1", Served: true}, {Name: "v2", Served: true}},
		Replaces: replaces,
	})
}

// TestObjectsOfKindsAtRunTimeAreCollectedAndReplaced has owners, dependents and a namespace with objects of
// such a kind, whose definition is replaced by one that stores another version.
func TestObjectsOfKindsAtRunTimeAreCollectedAndReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := sim.Plane(t, plane.Options{Serving: asAdmin})
		api, first := p.Admin(), gears("v1", nil)
		if err := p.AddKind(t.Context(), first.Def); err != nil {
			t.Fatal(err)
		}
		things, secrets := client.For(api, first), client.For(api, core.Secrets)
		gear := func(namespace, name string, owners ...metav1.OwnerReference) *custom.Object {
			t.Helper()
			o := custom.New("example.com/v1", "Gear")
			o.Namespace, o.Name, o.OwnerReferences = namespace, name, owners
			o.SetBody(map[string]any{"spec": map[string]any{"teeth": int64(12)}})
			o, err := things.Create(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			return o
		}
		if _, err := client.For(api, core.Namespaces).Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "goes"}}); err != nil {
			t.Fatal(err)
		}
		owner := gear("default", "owner")
		gear("default", "dependent", metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Gear", Name: "owner", UID: owner.UID})
		gear("goes", "content")
		if _, err := secrets.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "dependent",
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "example.com/v2", Kind: "Gear", Name: "owner", UID: owner.UID}},
		}}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		before := api.Cache(first.Def, "").Get("default/owner")
		second := gears("v2", first.Def)
		if err := p.ReplaceKind(first.Def, second.Def); err != nil {
			t.Fatal(err)
		}
		if api.Cache(second.Def, "") != api.Cache(first.Def, "") || api.Cache(second.Def, "").Get("default/owner") != before {
			t.Error("the objects of a replaced definition were loaded again")
		}
		things = client.For(api, second)
		got, err := things.Get(t.Context(), "default", "owner")
		if err != nil {
			t.Fatal(err)
		}
		if apiVersion, _ := got.Type(); apiVersion != "example.com/v2" || got.Body()["spec"].(map[string]any)["teeth"] != int64(12) {
			t.Errorf("got %s %v, want the object at the version that is stored now", apiVersion, got.Body())
		}
		time.Sleep(time.Minute)
		if err := things.Delete(t.Context(), "default", "owner", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := client.For(api, core.Namespaces).Delete(t.Context(), "", "goes", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		if _, err := things.Get(t.Context(), "default", "dependent"); !apierrors.IsNotFound(err) {
			t.Errorf("dependent: got %v, want it gone with its owner", err)
		}
		if _, err := secrets.Get(t.Context(), "default", "dependent"); !apierrors.IsNotFound(err) {
			t.Errorf("secret that an object owns: got %v, want it gone", err)
		}
		if _, err := client.For(api, core.Namespaces).Get(t.Context(), "", "goes"); !apierrors.IsNotFound(err) {
			t.Errorf("namespace: got %v, want it gone with what was in it", err)
		}
		p.RemoveKind(second.Def)
		if api.Cache(second.Def, "") != nil {
			t.Error("a kind that was removed is cached")
		}
	})
}
