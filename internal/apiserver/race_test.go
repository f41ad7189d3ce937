package apiserver

import (
	"context"
	"errors"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/admission/plugins"
	"github.com/kemudi/kemudi/internal/api/coordination"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/client"
)

// racing is admission with something that happens once, after it has agreed.
type racing struct {
	*admission.Chain
	then func(ctx context.Context)
}

func (r *racing) Validate(ctx context.Context, a *admission.Attributes) error {
	err := r.Chain.Validate(ctx, a)
	if then := r.then; then != nil && a.Def != core.Namespaces.Def {
		r.then = nil
		then(ctx)
	}
	return err
}

// TestNoObjectIsLeftInANamespaceThatGoes ends a namespace between the admission
// of an object and its commit: the moment in which it must not be made any more.
func TestNoObjectIsLeftInANamespaceThatGoes(t *testing.T) {
	t.Parallel()
	race := &racing{}
	f := newFixture(t, func(o *Options) { o.Admission = race })
	var err error
	if race.Chain, err = plugins.New(admission.Options{Caches: f.o.Caches.Cache, Fresh: f.Fresh}); err != nil {
		t.Fatal(err)
	}
	api := f.As(admin, "test")
	namespaces, maps := client.For(api, core.Namespaces), client.For(api, core.ConfigMaps)

	mark := func(ctx context.Context, ns string) error {
		return namespaces.Delete(ctx, "", ns, metav1.DeleteOptions{})
	}
	end := func(ctx context.Context, ns string) error {
		if err := mark(ctx, ns); err != nil {
			return err
		}
		_, err := namespaces.UpdateSub(ctx, "finalize", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
		return err
	}
	relabel := func(ctx context.Context, ns string) error {
		_, err := namespaces.Patch(ctx, "", ns, "", client.Patch{Type: types.MergePatchType, Data: []byte(`{"metadata":{"labels":{"a":"b"}}}`)})
		return err
	}
	meta := func(ns string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: "x", Namespace: ns} }
	create := func(ns string) error {
		_, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: meta(ns)})
		return err
	}
	generate := func(ns string) error {
		_, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "x-", Namespace: ns}})
		return err
	}
	put := func(ns string) error {
		_, err := client.For(api, coordination.Leases).Update(t.Context(), &coordinationv1.Lease{ObjectMeta: meta(ns)})
		return err
	}
	apply := func(ns string) error {
		_, err := maps.Patch(t.Context(), ns, "x", "", client.Patch{
			Type: types.ApplyYAMLPatchType, FieldManager: "test", Data: []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":{"a":"b"}}`),
		})
		return err
	}
	for _, how := range []struct {
		name string
		make func(ns string) error
	}{{"create", create}, {"generate", generate}, {"put", put}, {"apply", apply}} {
		for _, what := range []struct {
			name string
			do   func(ctx context.Context, ns string) error
			want func(err error) bool
		}{
			{"marked", mark, func(err error) bool { return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) }},
			{"gone", end, func(err error) bool {
				return apierrors.IsNotFound(err) && strings.Contains(err.Error(), "namespaces ")
			}},
			{"changed", relabel, func(err error) bool { return err == nil }},
		} {
			ns := how.name + "-" + what.name
			if _, err := namespaces.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}); err != nil {
				t.Fatal(err)
			}
			raced := errors.New("nothing happened meanwhile")
			race.then = func(ctx context.Context) { raced = what.do(ctx, ns) }
			err := how.make(ns)
			if raced != nil {
				t.Fatalf("%s: %v", ns, raced)
			}
			if !what.want(err) {
				t.Errorf("%s: got %v", ns, err)
			}
			kept, err2 := maps.List(t.Context(), ns, metav1.ListOptions{})
			leases, err3 := client.For(api, coordination.Leases).List(t.Context(), ns, metav1.ListOptions{})
			if err := errors.Join(err2, err3); err != nil {
				t.Fatal(err)
			}
			if n := len(kept) + len(leases); (n == 1) != (err == nil) {
				t.Errorf("%s: got %d objects in the namespace after %v", ns, n, err)
			}
			for _, m := range kept {
				if len(m.ManagedFields) > 1 {
					t.Errorf("%s: got %d managers, want 1: %v", ns, len(m.ManagedFields), m.ManagedFields)
				}
			}
		}
	}
}
