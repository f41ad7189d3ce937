package plane_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	migrationv1 "k8s.io/api/storagemigration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/apiextensions"
	"github.com/kemudi/kemudi/internal/api/storagemigration"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/plane"
	"github.com/kemudi/kemudi/internal/sim"
	"github.com/kemudi/kemudi/internal/store/mem"
)

// things is a definition of things that may have all fields.
func things(group string) *apiextensionsv1.CustomResourceDefinition {
	open := true
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "things." + group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group, Scope: apiextensionsv1.ClusterScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "things", Kind: "Thing"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &open}},
			}},
		},
	}
}

// asked sends a request as the administrator.
func asked(t *testing.T, p *plane.Plane, method, path, body string) (int, string) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	p.Server().Handler().ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func TestDefinitionIsServedOverRestartsAndGoesWithItsObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := mem.New(mem.Options{})
		log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
		p := sim.Plane(t, plane.Options{Serving: asAdmin, Store: store, Logger: log})
		crds := client.For(p.Admin(), apiextensions.CustomResourceDefinitions)
		if _, err := crds.Create(t.Context(), things("example.com")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // no time passes
		crd, err := crds.Get(t.Context(), "", "things.example.com")
		if err != nil || !apiextensions.IsTrue(crd, apiextensionsv1.Established) {
			t.Fatalf("got %+v, %v, want it established at once", crd, err)
		}
		const path = "/apis/example.com/v1/things"
		for _, body := range []string{`{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"a"}}`, `{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"b","finalizers":["x.example.com/y"]}}`} {
			if code, answer := asked(t, p, http.MethodPost, path, body); code != http.StatusCreated {
				t.Fatalf("got %d: %s", code, answer)
			}
		}
		again := sim.Plane(t, plane.Options{Serving: asAdmin, Store: store, Logger: log, Alone: true})
		if code, answer := asked(t, again, http.MethodGet, path+"/a", ""); code != http.StatusOK {
			t.Errorf("after a start: got %d: %s, want the object as soon as the server is ready", code, answer)
		}
		if err := crds.Delete(t.Context(), "", crd.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		crd, err = crds.Get(t.Context(), "", crd.Name)
		if err != nil {
			t.Fatal(err)
		}
		if c := apiextensions.Condition(crd, apiextensionsv1.Terminating); c == nil || c.Reason != "InstanceDeletionInProgress" || c.Status != apiextensionsv1.ConditionTrue {
			t.Errorf("got %+v, want its objects being deleted", c)
		}
		if code, answer := asked(t, p, http.MethodPost, path, `{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"c"}}`); code != http.StatusForbidden {
			t.Errorf("got %d: %s, want no new objects", code, answer)
		}
		if code, _ := asked(t, p, http.MethodGet, path+"/a", ""); code != http.StatusNotFound {
			t.Errorf("got %d, want the object gone", code)
		}
		time.Sleep(2 * time.Minute)
		if crd, err = crds.Get(t.Context(), "", crd.Name); err != nil || apiextensions.Condition(crd, apiextensionsv1.Terminating).Reason != "InstanceDeletionCheck" {
			t.Errorf("got %+v, %v, want to be told that an object stays", crd, err)
		}
		if code, answer := asked(t, p, http.MethodGet, path+"/b", ""); code != http.StatusOK {
			t.Errorf("got %d: %s, want the object that has a finalizer", code, answer)
		}
		if code, answer := patched(t, p, path+"/b", `{"metadata":{"finalizers":null}}`); code != http.StatusOK {
			t.Errorf("got %d: %s, want its finalizer gone", code, answer)
		}
		synctest.Wait()
		if _, err = crds.Get(t.Context(), "", crd.Name); !apierrors.IsNotFound(err) {
			t.Errorf("got %v, want the definition gone with its last object", err)
		}
		if code, _ := asked(t, p, http.MethodGet, path, ""); code != http.StatusNotFound {
			t.Errorf("got %d, want no such kind", code)
		}
	})
}

// patched sends a merge patch.
func patched(t *testing.T, p *plane.Plane, path, body string) (int, string) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPatch, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/merge-patch+json")
	w := httptest.NewRecorder()
	p.Server().Handler().ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func TestMigrationSaysInTheDefinitionInWhichVersionItsObjectsAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
		p := sim.Plane(t, plane.Options{Serving: asAdmin, Store: mem.New(mem.Options{}), Logger: log})
		crds, migrations := client.For(p.Admin(), apiextensions.CustomResourceDefinitions), client.For(p.Admin(), storagemigration.StorageVersionMigrations)
		if _, err := crds.Create(t.Context(), things("example.com")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if code, body := asked(t, p, "POST", "/apis/example.com/v1/things", `{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"one"}}`); code != http.StatusCreated {
			t.Fatalf("got %d %s", code, body)
		}
		crd, err := crds.Get(t.Context(), "", "things.example.com")
		if err != nil {
			t.Fatal(err)
		}
		v2 := *crd.Spec.Versions[0].DeepCopy()
		v2.Name = "v2"
		crd.Spec.Versions[0].Storage = false
		crd.Spec.Versions = append(crd.Spec.Versions, v2)
		if crd, err = crds.Update(t.Context(), crd); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(crd.Status.StoredVersions); got != "[v1 v2]" {
			t.Errorf("stored versions before: got %s", got)
		}
		synctest.Wait()
		for _, name := range []string{"first", "second"} {
			m := &migrationv1.StorageVersionMigration{ObjectMeta: metav1.ObjectMeta{Name: name}}
			m.Spec.Resource = metav1.GroupResource{Group: "example.com", Resource: "things"}
			if _, err := migrations.Create(t.Context(), m); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		for _, name := range []string{"first", "second"} {
			m, err := migrations.Get(t.Context(), "", name)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, c := range m.Status.Conditions {
				got = append(got, fmt.Sprintf("%s=%s %s %q", c.Type, c.Status, c.Reason, c.Message))
			}
			if want := `Running=False MigrationCompleted "Migration completed", Succeeded=True StorageVersionMigrationSucceeded ""`; strings.Join(got, ", ") != want {
				t.Errorf("%s: got %s, want %s", name, strings.Join(got, ", "), want)
			}
		}
		if crd, err = crds.Get(t.Context(), "", "things.example.com"); err != nil {
			t.Fatal(err)
		}
		c := apiextensions.Condition(crd, apiextensionsv1.StorageMigrating)
		if c == nil || c.Status != apiextensionsv1.ConditionFalse || c.Reason != "MigrationSucceeded" || c.Message != "The migration has succeeded and the stored versions have been updated" || c.ObservedGeneration != 2 {
			t.Errorf("got the condition %+v", c)
		}
		if got := fmt.Sprint(crd.Status.StoredVersions); got != "[v2]" {
			t.Errorf("stored versions after: got %s", got)
		}
	})
}
