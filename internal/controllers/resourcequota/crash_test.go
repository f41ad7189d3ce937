package resourcequota_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/plane"
	kemudi "github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/sim"
	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/store/mem"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/watchcache"
)

// slow is a store that takes its time before and after each write, so that writes
// cross, and who is killed is killed between two of them.
type slow struct {
	store.Store
	mu  sync.Mutex
	rng *rand.Rand
}

func (s *slow) Txn(ctx context.Context, t store.Txn) (store.TxnResult, error) {
	if err := s.pause(ctx); err != nil {
		return store.TxnResult{}, err
	}
	res, err := s.Store.Txn(ctx, t)
	return res, errors.Join(err, s.pause(ctx))
}

func (s *slow) pause(ctx context.Context) error {
	s.mu.Lock()
	d := time.Duration(s.rng.IntN(3000)) * time.Microsecond
	s.mu.Unlock()
	return task.Sleep(ctx, d)
}

var errKilled = errors.New("killed")

// crash runs a control plane with controllers until kill is called.
func crash(t *testing.T, st store.Store) (kill func()) {
	p, err := plane.New(plane.Options{Store: st, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	g := task.NewGroup(t.Context())
	g.Go("control plane", p.Run)
	return func() {
		g.Cancel(errKilled)
		if err := g.Wait(); err != nil && !errors.Is(err, errKilled) {
			t.Error(err)
		}
	}
}

// TestAQuotaHoldsAtEveryMoment has clients of two servers make, change, end and delete
// objects at random while the controllers are killed again and again, and looks at every
// revision of the store: there is never more than the quotas allow, nor more than they
// say. KEMUDI_SEED plays one seed again.
func TestAQuotaHoldsAtEveryMoment(t *testing.T) {
	sim.Seeds(t, 12, func(t *testing.T, rng *rand.Rand) {
		synctest.Test(t, func(t *testing.T) { hold(t, rng) })
	})
}

func hold(t *testing.T, rng *rand.Rand) {
	under := mem.New(mem.Options{})
	st := &slow{Store: under, rng: rand.New(rand.NewPCG(rng.Uint64(), 0))}
	kill := crash(t, st)
	on := []*plane.Plane{sim.Plane(t, plane.Options{Store: st, Leadership: nobody{}}), sim.Plane(t, plane.Options{Store: st, Leadership: nobody{}})}
	quotas := client.For(on[0].Admin(), core.ResourceQuotas)
	first := quota("first", "count/configmaps=12", "pods=8", "requests.cpu=3", "count/pods=14", "services.nodeports=5")
	if _, err := quotas.Create(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	await(t, on[0], "first", hasUsed("pods", "0/8"))

	var wg sync.WaitGroup
	for i := range 6 {
		c := &user{T: t, api: on[i%2].Admin(), rng: rand.New(rand.NewPCG(rng.Uint64(), 0))}
		wg.Go(func() {
			for range 60 {
				c.act()
			}
		})
	}
	late := quota("late", "pods=3", "configmaps=20")
	time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
	if _, err := quotas.Create(t.Context(), late); err != nil {
		t.Fatal(err)
	}
	for range 6 {
		time.Sleep(time.Duration(rng.IntN(200)) * time.Millisecond)
		kill()
		time.Sleep(time.Duration(rng.IntN(50)) * time.Millisecond)
		kill = crash(t, st)
	}
	wg.Wait()
	time.Sleep(time.Minute)
	kill()
	judge(t, under)
}

// user does things at random.
type user struct {
	*testing.T
	api client.Transport
	rng *rand.Rand
}

func (u *user) act() {
	time.Sleep(time.Duration(u.rng.IntN(20)) * time.Millisecond)
	meta := metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("x", u.rng.IntN(20))}
	pods, maps, services := client.For(u.api, core.Pods), client.For(u.api, core.ConfigMaps), client.For(u.api, core.Services)
	var err error
	switch u.rng.IntN(10) {
	case 0, 1, 2:
		amount := corev1.ResourceList{"cpu": *resource.NewMilliQuantity(u.rng.Int64N(1000), resource.DecimalSI)}
		_, err = pods.Create(u.Context(), &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "c", Image: "c", Resources: corev1.ResourceRequirements{Requests: amount}}},
		}})
	case 3:
		err = pods.Delete(u.Context(), "default", meta.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
	case 4:
		var pod *corev1.Pod
		if pod, err = pods.Get(u.Context(), "default", meta.Name); err == nil && !core.PodTerminal(pod) {
			pod = pod.DeepCopy()
			pod.Status.Phase = corev1.PodSucceeded
			_, err = pods.UpdateStatus(u.Context(), pod)
		}
	case 5, 6:
		_, err = maps.Create(u.Context(), &corev1.ConfigMap{ObjectMeta: meta})
	case 7:
		err = maps.Delete(u.Context(), "default", meta.Name, metav1.DeleteOptions{})
	case 8:
		patch := fmt.Sprintf(`{"apiVersion":"v1","kind":"Service","metadata":{"name":"%s"},"spec":{"type":"%s","ports":[{"port":1,"name":"a"},{"port":2,"name":"b"}]}}`,
			meta.Name, []string{"ClusterIP", "NodePort"}[u.rng.IntN(2)])
		_, err = services.Patch(u.Context(), "default", meta.Name, "", client.Patch{Type: "application/apply-patch+yaml", FieldManager: "test", Data: []byte(patch)})
	case 9:
		err = services.Delete(u.Context(), "default", meta.Name, metav1.DeleteOptions{})
	}
	over := apierrors.IsForbidden(err) && (strings.Contains(err.Error(), "exceeded quota: ") || strings.Contains(err.Error(), "status unknown for quota: late"))
	if err != nil && !over && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
		u.Error(err)
	}
}

// judge goes through all revisions of a store.
func judge(t *testing.T, st store.Store) {
	t.Helper()
	defs := map[string]*kemudi.Def{}
	for _, def := range []*kemudi.Def{core.Pods.Def, core.ConfigMaps.Def, core.Services.Def, core.ResourceQuotas.Def} {
		defs[def.Key("default", "")] = def
	}
	objects := map[string]kemudi.Object{}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, last, err := st.Get(ctx, "/registry/")
	if err != nil {
		t.Fatal(err)
	}
	refused, rev := 0, int64(0)
	err = st.Watch(ctx, "/registry/", 0, func(changes []store.Change, progress int64) error {
		for i, c := range changes {
			dir, name := c.Key[:strings.LastIndex(c.Key, "/")+1], c.Key
			if def := defs[dir]; def != nil {
				if c.Value == nil {
					delete(objects, name)
				} else if objects[name], err = watchcache.Decode(def, c.Value, c.Rev); err != nil {
					t.Fatal(err)
				}
			}
			if i+1 == len(changes) || changes[i+1].Rev != c.Rev {
				rev = c.Rev
				refused += balance(t, objects, rev, rev == last)
			}
		}
		if progress >= last {
			cancel()
		}
		return nil
	})
	if err != nil && ctx.Err() == nil {
		t.Fatal(err)
	}
	if refused == 0 {
		t.Error("no quota was ever full: nothing was tested")
	}
}

// balance holds what there is at one revision against what the quotas say; at the end
// they must say just that. It returns how many of their amounts are used up.
func balance(t *testing.T, objects map[string]kemudi.Object, rev int64, end bool) (full int) {
	t.Helper()
	is := map[corev1.ResourceName]*resource.Quantity{}
	for _, name := range []corev1.ResourceName{"count/configmaps", "configmaps", "count/pods", "pods", "requests.cpu", "services.nodeports"} {
		is[name] = &resource.Quantity{}
	}
	one := *resource.NewQuantity(1, resource.DecimalSI)
	for _, obj := range objects {
		switch obj := obj.(type) {
		case *corev1.ConfigMap:
			is["count/configmaps"].Add(one)
			is["configmaps"].Add(one)
		case *corev1.Service:
			if obj.Spec.Type == corev1.ServiceTypeNodePort {
				is["services.nodeports"].Add(*resource.NewQuantity(int64(len(obj.Spec.Ports)), resource.DecimalSI))
			}
		case *corev1.Pod:
			is["count/pods"].Add(one)
			if !core.PodTerminal(obj) {
				is["pods"].Add(one)
				is["requests.cpu"].Add(*obj.Spec.Containers[0].Resources.Requests.Cpu())
			}
		}
	}
	for _, obj := range objects {
		q, ok := obj.(*corev1.ResourceQuota)
		if !ok {
			continue
		}
		for name, hard := range q.Status.Hard {
			used := q.Status.Used[name]
			if is[name].Cmp(used) > 0 || q.Name == "first" && is[name].Cmp(hard) > 0 || end && is[name].Cmp(used) != 0 {
				t.Errorf("at revision %d (the end: %t), quota %s: %s of %s is taken, it says %s, and allows %s", rev, end, q.Name, is[name], name, &used, &hard)
			}
			if used.Cmp(hard) >= 0 {
				full++
			}
		}
	}
	return full
}
