package resourcequota_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/plane"
	"github.com/kemudi/kemudi/internal/sim"
	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/store/mem"
)

// nobody leads: a server without controllers.
type nobody struct{}

func (nobody) Lead(ctx context.Context, _ func(context.Context) error) error {
	<-ctx.Done()
	return nil
}

// servers runs n control planes over one store, of which the first has the controllers.
func servers(t *testing.T, st store.Store, n int) []*plane.Plane {
	t.Helper()
	list := []*plane.Plane{sim.Plane(t, plane.Options{Store: st, Shared: n > 1})}
	for range n - 1 {
		list = append(list, sim.Plane(t, plane.Options{Store: st, Shared: true, Leadership: nobody{}}))
	}
	return list
}

// quota is one of numbers, written "name=number".
func quota(name string, hard ...string) *corev1.ResourceQuota {
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	q.Spec.Hard = corev1.ResourceList{}
	for _, h := range hard {
		what, amount, _ := strings.Cut(h, "=")
		q.Spec.Hard[corev1.ResourceName(what)] = resource.MustParse(amount)
	}
	return q
}

// await waits until a quota is as a test wants it.
func await(t *testing.T, p *plane.Plane, name string, is func(q *corev1.ResourceQuota) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	c := p.Admin().Cache(core.ResourceQuotas.Def, "")
	f := c.Follow(cache.FollowOptions{})
	defer f.Close()
	for {
		it := c.Get("default/" + name)
		if it != nil && is(it.Object.(*corev1.ResourceQuota)) {
			return
		}
		select {
		case <-f.Ready():
			f.Next()
		case <-ctx.Done():
			t.Fatalf("quota %s: got %+v", name, it)
		}
	}
}

// used says what a quota tells to be taken, "used/hard".
func used(q *corev1.ResourceQuota, what corev1.ResourceName) string {
	hard, ok := q.Status.Hard[what]
	if !ok {
		return "unknown"
	}
	is := q.Status.Used[what]
	return is.String() + "/" + hard.String()
}

func hasUsed(what corev1.ResourceName, want string) func(q *corev1.ResourceQuota) bool {
	return func(q *corev1.ResourceQuota) bool { return used(q, what) == want }
}

// rush makes objects all at once over all servers, and says how many were made.
// Whoever is refused must be so because of the quota.
func rush(t *testing.T, on []*plane.Plane, n int, make func(p *plane.Plane, i int) error) (made int) {
	t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			err := make(on[i%len(on)], i)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				made++
			case !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "exceeded quota: "):
				t.Errorf("got %v, want it made or over the quota", err)
			}
		})
	}
	wg.Wait()
	return made
}

func TestAsManyAreMadeAtOnceAsAQuotaAllows(t *testing.T) {
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprintf("%d servers", n), func(t *testing.T) {
			atOnce(t, servers(t, mem.New(mem.Options{}), n))
		})
	}
}

func atOnce(t *testing.T, on []*plane.Plane) {
	quotas := client.For(on[0].Admin(), core.ResourceQuotas)
	for _, q := range []*corev1.ResourceQuota{quota("few", "count/configmaps=100", "secrets=7"), quota("more", "configmaps=130")} {
		if _, err := quotas.Create(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	// kube-root-ca.crt is there, or comes.
	await(t, on[0], "few", hasUsed("count/configmaps", "1/100"))
	await(t, on[0], "more", hasUsed("configmaps", "1/130"))
	round := 0
	create := func(p *plane.Plane, i int) error {
		meta := metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("m%d-%d", round, i)}
		if i%2 == 0 {
			meta.Name, meta.GenerateName = "", "m"
		}
		_, err := client.For(p.Admin(), core.ConfigMaps).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: meta})
		return err
	}
	if got := rush(t, on, 200, create); got != 99 {
		t.Errorf("got %d made, want 99", got)
	}
	q, err := quotas.Get(t.Context(), "default", "few")
	if err != nil {
		t.Fatal(err)
	}
	if got := used(q, "count/configmaps"); got != "100/100" {
		t.Errorf("right afterwards: got %s used, want 100/100", got)
	}
	maps, err := client.For(on[0].Admin(), core.ConfigMaps).List(t.Context(), "default", metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	deleted := 0
	for i, cm := range maps {
		if cm.Name == "kube-root-ca.crt" || deleted == 40 {
			continue
		}
		deleted++
		if err := client.For(on[i%len(on)].Admin(), core.ConfigMaps).Delete(t.Context(), "default", cm.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range on {
		await(t, p, "few", hasUsed("count/configmaps", "60/100"))
		await(t, p, "more", hasUsed("configmaps", "60/130"))
	}
	round++
	if got := rush(t, on, 100, create); got != 40 {
		t.Errorf("after 40 were deleted: got %d made, want 40", got)
	}
	await(t, on[0], "few", hasUsed("count/configmaps", "100/100"))
	await(t, on[0], "more", hasUsed("configmaps", "100/130"))
}
