package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/admission/plugins"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/watchcache"
)

// admitting starts a server with the plugins of admission.
func admitting(t testing.TB, change func(o *Options)) *fixture {
	t.Helper()
	race := &racing{}
	f := newFixture(t, func(o *Options) {
		o.Admission = race
		change(o)
	})
	var err error
	if race.Chain, err = plugins.New(admission.Options{Caches: f.o.Caches.Cache, Fresh: f.o.Caches.(*watchcache.Set).Fresh}); err != nil {
		t.Fatal(err)
	}
	return f
}

// withQuota makes a namespace with a quota of config maps whose status is known.
func withQuota(t testing.TB, api client.Transport, ns string, hard int64) {
	t.Helper()
	if _, err := client.For(api, core.Namespaces).Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}); err != nil {
		t.Fatal(err)
	}
	list := corev1.ResourceList{corev1.ResourceConfigMaps: *resource.NewQuantity(hard, resource.DecimalSI)}
	quotas := client.For(api, core.ResourceQuotas)
	q, err := quotas.Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "q"}, Spec: corev1.ResourceQuotaSpec{Hard: list},
	})
	if err != nil {
		t.Fatal(err)
	}
	q = q.DeepCopy()
	q.Status.Hard, q.Status.Used = list, corev1.ResourceList{corev1.ResourceConfigMaps: {}}
	if _, err := quotas.UpdateStatus(t.Context(), q); err != nil {
		t.Fatal(err)
	}
}

func TestQuotasAreCharged(t *testing.T) {
	t.Parallel()
	t.Run("by the servers of one store together", chargeTogether)
	t.Run("not for what fails", chargeNotForFailures)
	t.Run("when they come in the middle", chargeWhatComesMeanwhile)
}

// chargeTogether makes 200 objects at once, over three servers,
// where a quota allows 100. Those of one server try them before, which is free.
func chargeTogether(t *testing.T) {
	t.Parallel()
	first := admitting(t, func(o *Options) { o.Shared = true })
	second := func(o *Options) { o.Store, o.Shared = first.store, true }
	apis := []client.Transport{first.As(admin, "a"), admitting(t, second).As(admin, "b"), admitting(t, second).As(admin, "c")}
	withQuota(t, apis[0], "team", 100)
	var mu sync.Mutex
	made, refused := 0, 0
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "team", GenerateName: "x-"}}
			if i%3 == 1 {
				cm.Name, cm.GenerateName = fmt.Sprint("y-", i), ""
			}
			_, err := client.For(apis[i%3], core.ConfigMaps).Create(t.Context(), cm)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				made++
			case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota: q, requested: configmaps=1, used: configmaps=100, limited: configmaps=100"):
				refused++
			default:
				t.Errorf("got %v", err)
			}
		})
		if i%3 == 0 {
			wg.Go(func() {
				first.ask("POST", "/api/v1/namespaces/team/configmaps?dryRun=All", `{"metadata":{"name":"dry"}}`)
			})
		}
	}
	wg.Wait()
	if made != 100 || refused != 100 {
		t.Errorf("got %d made and %d refused, want 100 of each", made, refused)
	}
	for _, api := range apis {
		q, err := client.For(api, core.ResourceQuotas).Get(t.Context(), "team", "q")
		if err != nil {
			t.Fatal(err)
		}
		if got := q.Status.Used[corev1.ResourceConfigMaps]; got.Value() != 100 {
			t.Errorf("got %s used, want 100", &got)
		}
	}
}

// chargeNotForFailures makes objects that the server refuses in the end, or is only
// asked to try.
func chargeNotForFailures(t *testing.T) {
	t.Parallel()
	f := admitting(t, func(*Options) {})
	withQuota(t, f.As(admin, "test"), "team", 2)
	f.must(http.StatusCreated, "POST", "/api/v1/namespaces/team/configmaps", `{"metadata":{"name":"a"}}`)
	f.must(http.StatusConflict, "POST", "/api/v1/namespaces/team/configmaps", `{"metadata":{"name":"a"}}`)
	f.must(http.StatusUnprocessableEntity, "POST", "/api/v1/namespaces/team/configmaps", `{"metadata":{"name":"A"}}`)
	f.must(http.StatusCreated, "POST", "/api/v1/namespaces/team/configmaps?dryRun=All", `{"metadata":{"name":"b"}}`)
	f.must(http.StatusOK, "PUT", "/api/v1/namespaces/team/configmaps/a", `{"metadata":{"name":"a"},"data":{"k":"v"}}`)
	f.must(http.StatusCreated, "PATCH", "/api/v1/namespaces/team/configmaps/b?fieldManager=m", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b"}}`, "Content-Type: application/apply-patch+yaml")
	const want = `"message":"configmaps \"c\" is forbidden: exceeded quota: q, requested: configmaps=1, used: configmaps=2, limited: configmaps=2"`
	for _, path := range []string{"/api/v1/namespaces/team/configmaps", "/api/v1/namespaces/team/configmaps?dryRun=All"} {
		if got := f.must(http.StatusForbidden, "POST", path, `{"metadata":{"name":"c"}}`); !strings.Contains(got, want) {
			t.Errorf("%s: got %s", path, got)
		}
	}
}

// chargeWhatComesMeanwhile makes a quota between the admission of an object and
// its commit, and changes what it counts: the object is charged to it.
func chargeWhatComesMeanwhile(t *testing.T) {
	t.Parallel()
	race := &racing{}
	f := newFixture(t, func(o *Options) { o.Admission = race })
	var err error
	if race.Chain, err = plugins.New(admission.Options{Caches: f.o.Caches.Cache, Fresh: f.o.Caches.(*watchcache.Set).Fresh}); err != nil {
		t.Fatal(err)
	}
	api := f.As(admin, "test")
	if _, err := client.For(api, core.Namespaces).Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}}); err != nil {
		t.Fatal(err)
	}
	quotas := client.For(api, core.ResourceQuotas)
	used := func(name corev1.ResourceName) string {
		q, err := quotas.Get(t.Context(), "team", "q")
		if err != nil {
			t.Fatal(err)
		}
		got := q.Status.Used[name]
		return got.String()
	}
	raced := errors.New("nothing happened meanwhile")
	race.then = func(context.Context) {
		_, raced = quotas.Create(t.Context(), &corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "q"},
			Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourceConfigMaps: resource.MustParse("5")}},
		})
	}
	f.must(http.StatusCreated, "POST", "/api/v1/namespaces/team/configmaps", `{"metadata":{"name":"a"}}`)
	if raced != nil {
		t.Fatal(raced)
	}
	if got := used(corev1.ResourceConfigMaps); got != "1" {
		t.Errorf("a quota that has come: got %s charged, want 1", got)
	}
	race.then = func(context.Context) {
		_, raced = quotas.Patch(t.Context(), "team", "q", "", client.Patch{Type: "application/merge-patch+json", Data: []byte(`{"spec":{"hard":{"secrets":"5"}}}`)})
	}
	f.must(http.StatusCreated, "POST", "/api/v1/namespaces/team/secrets", `{"metadata":{"name":"a"}}`)
	if raced != nil {
		t.Fatal(raced)
	}
	if got := used(corev1.ResourceSecrets); got != "1" {
		t.Errorf("a quota that counts more: got %s charged, want 1", got)
	}
}

// BenchmarkCreateUnderQuota creates in a namespace without and with a quota that counts
// what is created, one by one and by eight clients at once, on a store that does not wait
// for the disk.
func BenchmarkCreateUnderQuota(b *testing.B) {
	for _, clients := range []int{1, 8} {
		for _, with := range []bool{false, true} {
			b.Run(fmt.Sprintf("clients=%d/quota=%t", clients, with), func(b *testing.B) {
				f := admitting(b, func(o *Options) { o.Store = newEtcd(b, b.TempDir()) })
				api := f.As(admin, "bench")
				withQuota(b, api, "with", 1<<40)
				ns := "with"
				if !with {
					ns = "without"
					if _, err := client.For(api, core.Namespaces).Create(b.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}); err != nil {
						b.Fatal(err)
					}
				}
				maps := client.For(api, core.ConfigMaps)
				var n atomic.Int64
				b.ReportAllocs()
				defer cpu(b)()
				create := func() {
					name := fmt.Sprint("m-", n.Add(1))
					if _, err := maps.Create(b.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns}}); err != nil {
						b.Error(err)
					}
				}
				if clients == 1 {
					for b.Loop() {
						create()
					}
					return
				}
				b.SetParallelism(max(1, clients/runtime.GOMAXPROCS(0)))
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						create()
					}
				})
			})
		}
	}
}
