package disruption_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kemudi/kemudi/internal/api/apps"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/policy"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/sim"
	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/store/mem"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/internal/watchcache"
)

// app is an application under eviction.
type app struct {
	*testing.T
	rng              *rand.Rand
	c                *sim.Cluster
	replicas, wanted int

	evicted, refused atomic.Int64
	least            atomic.Int64 // healthy pods there ever were, once there were all
}

// TestEvictionsNeverGoBeyondTheBudget evicts pods of an application from several
// sides while the control plane is killed between any two writes. Nothing else
// disrupts it: at no revision are fewer pods healthy than the budget wants.
// KEMUDI_SEED plays one seed again.
func TestEvictionsNeverGoBeyondTheBudget(t *testing.T) {
	trace.Proves(t, "DIS-010", "DIS-016")
	var evicted, refused, tight atomic.Int64
	t.Cleanup(func() {
		if os.Getenv("KEMUDI_SEED") == "" && (evicted.Load() == 0 || refused.Load() == 0 || tight.Load() == 0) {
			t.Errorf("%d pods were evicted, %d not, %d budgets were spent, want some of each", evicted.Load(), refused.Load(), tight.Load())
		}
	})
	sim.Seeds(t, 8, func(t *testing.T, rng *rand.Rand) {
		synctest.Test(t, func(t *testing.T) {
			a := play(t, rng)
			evicted.Add(a.evicted.Load())
			refused.Add(a.refused.Load())
			if a.least.Load() == int64(a.wanted) {
				tight.Add(1)
			}
		})
	})
}

func play(t *testing.T, rng *rand.Rand) *app {
	st := sim.NewSlow(mem.New(mem.Options{}), rng.Uint64())
	c, err := sim.Start(t.Context(), sim.Options{Store: st, Nodes: []sim.NodeOptions{{Name: "n1"}, {Name: "n2"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	}()
	a := &app{T: t, rng: rng, c: c, replicas: 2 + rng.IntN(8)}
	budget := a.deploy()
	g := task.NewGroup(t.Context())
	g.Go("count", func(ctx context.Context) error { return a.count(ctx, st) })
	for range 20 + rng.IntN(20) {
		if rng.IntN(10) == 0 {
			a.crash(g)
		}
		for range 1 + rng.IntN(4) {
			a.evictSome(g)
		}
		time.Sleep(time.Duration(rng.IntN(4000)) * time.Millisecond)
	}
	time.Sleep(10 * time.Minute) // what was granted and not done is forgotten
	g.Cancel(errors.New("enough"))
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
	got, err := client.For(c.API(), policy.PodDisruptionBudgets).Get(t.Context(), "default", "web")
	if err != nil {
		t.Fatal(err)
	}
	if s := got.Status; int(s.DesiredHealthy) != a.wanted || int(s.CurrentHealthy) != a.replicas || int(s.DisruptionsAllowed) != a.replicas-a.wanted || len(s.DisruptedPods) > 0 {
		t.Errorf("%s of %d: in the end the budget says %+v, want %d of %d", budget, a.replicas, s, a.wanted, a.replicas)
	}
	return a
}

// deploy makes the application and its budget, and returns when all is well.
func (a *app) deploy() (budget string) {
	a.Helper()
	labels := map[string]string{"app": "web"}
	_, err := client.For(a.c.API(), apps.Deployments).Create(a.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(a.replicas)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: map[string]string{
					"sim.kemudi.io/ready-after": fmt.Sprintf("%ds", a.rng.IntN(5)), "sim.kemudi.io/stop-after": fmt.Sprintf("%ds", a.rng.IntN(5)),
				}},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "c"}}},
			},
		},
	})
	if err != nil {
		a.Fatal(err)
	}
	b := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}},
	}
	n, share := a.rng.IntN(a.replicas), a.rng.IntN(101)
	up := (share*a.replicas + 99) / 100
	number, percent := intstr.FromInt32(int32(n)), intstr.FromString(fmt.Sprintf("%d%%", share))
	switch a.rng.IntN(4) {
	case 0:
		b.Spec.MinAvailable, a.wanted = &number, n
	case 1:
		b.Spec.MinAvailable, a.wanted = &percent, up
	case 2:
		b.Spec.MaxUnavailable, a.wanted = &number, a.replicas-n
	case 3:
		b.Spec.MaxUnavailable, a.wanted = &percent, a.replicas-up
	}
	if a.rng.IntN(2) == 0 {
		b.Spec.UnhealthyPodEvictionPolicy = new(policyv1.AlwaysAllow)
	}
	if _, err := client.For(a.c.API(), policy.PodDisruptionBudgets).Create(a.Context(), b); err != nil {
		a.Fatal(err)
	}
	time.Sleep(time.Minute)
	return b.Spec.String()
}

// evictSome asks for the eviction of some pod, whatever it is like.
func (a *app) evictSome(g *task.Group) {
	pods := client.For(a.c.API(), core.Pods)
	all, err := pods.List(a.Context(), "default", metav1.ListOptions{})
	if err != nil {
		a.Fatal(err)
	}
	if len(all) == 0 {
		return
	}
	name := all[a.rng.IntN(len(all))].Name
	g.Go("evict", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		_, err := pods.Post(ctx, "default", name, "eviction", &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: name}})
		switch {
		case err == nil:
			a.evicted.Add(1)
		case apierrors.IsTooManyRequests(err):
			a.refused.Add(1)
		}
		return nil // who is killed answers with anything, or not at all
	})
}

// crash lets some evictions begin, and kills the control plane on the way.
func (a *app) crash(g *task.Group) {
	for range a.rng.IntN(4) {
		a.evictSome(g)
	}
	time.Sleep(time.Duration(a.rng.IntN(15)) * time.Millisecond)
	if err := a.c.Restart(); err != nil {
		a.Fatal(err)
	}
}

// count follows the pods, revision by revision.
func (a *app) count(ctx context.Context, st store.Store) error {
	healthy := map[string]bool{}
	all := false
	a.least.Store(int64(a.replicas))
	const prefix = "/registry/pods/default/"
	err := st.Watch(ctx, prefix, 0, func(changes []store.Change, _ int64) error {
		for _, ch := range changes {
			if !strings.HasPrefix(ch.Key, prefix) {
				continue
			}
			delete(healthy, ch.Key)
			if ch.Value != nil {
				obj, err := watchcache.Decode(core.Pods.Def, ch.Value, ch.Rev)
				if err != nil {
					return err
				}
				if p := obj.(*corev1.Pod); core.PodReady(p) && p.DeletionTimestamp == nil {
					healthy[ch.Key] = true
				}
			}
			n := len(healthy)
			if all = all || n >= a.replicas; !all {
				continue
			}
			a.least.Store(min(a.least.Load(), int64(n)))
			if n < a.wanted {
				a.Errorf("revision %d: %d of %d pods are healthy, want %d at least", ch.Rev, n, a.replicas, a.wanted)
			}
		}
		return nil
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}
