package leader_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/apps"
	"github.com/kemudi/kemudi/internal/api/batch"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/sim"
	"github.com/kemudi/kemudi/internal/task"
)

const (
	replicas    = 8
	completions = 5
	nodePods    = 7 // of each of three nodes: not enough for all at once
	steps       = 12
)

// game is a random life of control planes, what is asked of them, and what must hold.
type game struct {
	fates
	jobs int

	sets client.Client[*appsv1.ReplicaSet]
	work client.Client[*batchv1.Job]
	pods client.Client[*corev1.Pod]
}

// TestNothingIsDoneTwice whatever happens to the leaders: they are killed, stopped and, the worst,
// frozen in the middle of their writes, which arrive when another has long taken over.
func TestNothingIsDoneTwice(t *testing.T) {
	var late, changes atomic.Int64
	t.Run("seeds", func(t *testing.T) {
		sim.Seeds(t, 12, func(t *testing.T, rng *rand.Rand) {
			synctest.Test(t, func(t *testing.T) {
				n, m := play(t, rng)
				late.Add(int64(n))
				changes.Add(int64(m))
			})
		})
	})
	if late.Load() == 0 || changes.Load() == 0 {
		t.Errorf("got %d late writes and %d changes of leaders: nothing was tested", late.Load(), changes.Load())
	}
}

func play(t *testing.T, rng *rand.Rand) (late, changes int) {
	c, err := sim.Start(t.Context(), sim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	g := &game{fates: fates{T: t, rng: rng, c: c, alive: []string{"a", "b", "c"}}}
	defer func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	}()
	for i := range 3 {
		if err := c.AddNode(sim.NodeOptions{Name: fmt.Sprintf("n%d", i), MaxPods: nodePods}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Contend(g.alive...); err != nil {
		t.Fatal(err)
	}
	g.sets, g.work, g.pods = client.For(c.API(), apps.ReplicaSets), client.For(c.API(), batch.Jobs), client.For(c.API(), core.Pods)
	ctx, cancel := context.WithCancel(t.Context())
	watch := task.NewGroup(ctx)
	watch.Go("watch", g.watch)
	defer func() {
		cancel()
		if err := watch.Wait(); err != nil {
			t.Error(err)
		}
	}()
	g.must(g.sets.Create(ctx, &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "set"},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: ptr.To[int32](replicas), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"of": "set"}},
			Template: template("set", corev1.RestartPolicyAlways, nil),
		},
	}))
	for range steps {
		g.step(ctx)
	}
	g.revive()
	time.Sleep(10 * time.Minute)
	g.settled(ctx)
	return g.lateWrites(), g.transitions()
}

func template(of string, restart corev1.RestartPolicy, annotations map[string]string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"of": of}, Annotations: annotations},
		Spec:       corev1.PodSpec{RestartPolicy: restart, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
}

// step has something happen to a control plane, and asks for something before or after.
func (g *game) step(ctx context.Context) {
	g.Helper()
	ask := g.kill
	if g.rng.IntN(3) == 0 {
		ask = g.job
	}
	if g.rng.IntN(2) == 0 {
		g.fate()
		ask(ctx)
	} else {
		ask(ctx)
		time.Sleep(time.Duration(g.rng.IntN(1500)) * time.Millisecond) // it is in the middle of it
		g.fate()
	}
	time.Sleep(time.Duration(g.rng.IntN(25)) * time.Second)
}

// job asks for some work.
func (g *game) job(ctx context.Context) {
	g.Helper()
	g.jobs++
	name := fmt.Sprintf("job%d", g.jobs)
	g.must(g.work.Create(ctx, &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: batchv1.JobSpec{
			Completions: ptr.To[int32](completions), Parallelism: ptr.To[int32](2),
			Template: template(name, corev1.RestartPolicyNever, map[string]string{"sim.kemudi.io/exit-after": "1s"}),
		},
	}))
}

// kill deletes some pods of the set.
func (g *game) kill(ctx context.Context) {
	g.Helper()
	list, err := g.pods.List(ctx, "default", metav1.ListOptions{LabelSelector: "of=set"})
	g.must(nil, err)
	for _, p := range list {
		if g.rng.IntN(3) == 0 {
			g.must(nil, g.pods.Delete(ctx, p.Namespace, p.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}))
		}
	}
}

// watch holds what must hold at every moment: no set has more pods than it wants, no
// job makes more pods than it needs, no node gets more than it takes.
func (g *game) watch(ctx context.Context) error {
	cu, err := client.Cached(g.c.API(), core.Pods, "").Cursor(cache.CursorOptions{FromNow: true, Namespace: "default"})
	if err != nil {
		return err
	}
	defer cu.Close()
	pods, made := map[string]*corev1.Pod{}, map[types.UID]map[types.UID]bool{}
	for {
		select {
		case <-cu.Ready():
		case <-ctx.Done():
			return nil
		}
		events, err := cu.Next()
		if err != nil {
			return err
		}
		for _, e := range events {
			pod := e.Item.Object.(*corev1.Pod)
			pods[e.Item.Key] = pod
			if e.Type == cache.Deleted {
				delete(pods, e.Item.Key)
			}
			if err := hold(pods, made, pod); err != nil {
				return err
			}
		}
	}
}

func hold(pods map[string]*corev1.Pod, made map[types.UID]map[types.UID]bool, pod *corev1.Pod) error {
	owner := metav1.GetControllerOf(pod)
	if owner == nil {
		return errors.New("a pod has no owner")
	}
	if made[owner.UID] == nil {
		made[owner.UID] = map[types.UID]bool{}
	}
	made[owner.UID][pod.UID] = true
	if owner.Kind == "Job" && len(made[owner.UID]) > completions {
		return fmt.Errorf("job %s made %d pods, of which none failed, and needs %d", owner.Name, len(made[owner.UID]), completions)
	}
	active, on := 0, map[string]int{}
	for _, p := range pods {
		if p.Labels["of"] == "set" && p.DeletionTimestamp == nil {
			active++
		}
		if !core.PodTerminal(p) {
			on[p.Spec.NodeName]++
		}
	}
	if active > replicas {
		return fmt.Errorf("the set has %d pods and wants %d", active, replicas)
	}
	for node, n := range on {
		if node != "" && n > nodePods {
			return fmt.Errorf("node %s has %d pods and takes %d", node, n, nodePods)
		}
	}
	return nil
}

// settled holds what must be so in the end.
func (g *game) settled(ctx context.Context) {
	g.Helper()
	set, err := g.sets.Get(ctx, "default", "set")
	g.must(nil, err)
	if err == nil && set.Status.ReadyReplicas != replicas {
		g.Errorf("the set has %d pods ready, want %d; alive %v", set.Status.ReadyReplicas, replicas, g.alive)
	}
	for i := range g.jobs {
		job, err := g.work.Get(ctx, "default", fmt.Sprintf("job%d", i+1))
		g.must(nil, err)
		if err == nil && (job.Status.Succeeded != completions || job.Status.CompletionTime == nil) {
			g.Errorf("job %d: %d of %d done, finished at %v", i+1, job.Status.Succeeded, completions, job.Status.CompletionTime)
		}
	}
}
