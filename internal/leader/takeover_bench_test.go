package leader_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/sim"
	"github.com/kemudi/kemudi/internal/store/etcd"
	"github.com/kemudi/kemudi/internal/task"
)

// BenchmarkTakeOver ends the one of two control planes over one etcd that schedules, at any time between
// two renewals of its lease, in real time, and reports after how long a pod that was made at that
// moment has a node: by then the other leads. A killed process has no time to give its lease back.
func BenchmarkTakeOver(b *testing.B) {
	for _, end := range []struct {
		name string
		do   func(c *sim.Cluster, plane string) error
	}{{"stopped", (*sim.Cluster).StopPlane}, {"killed", (*sim.Cluster).KillPlane}} {
		b.Run(end.name, func(b *testing.B) {
			seed := rand.Uint64()
			b.Logf("seed %d", seed)
			rng := rand.New(rand.NewPCG(seed, 0))
			c := contenders(b)
			var took []time.Duration
			for b.Loop() {
				if err := task.Sleep(b.Context(), time.Duration(rng.Int64N(int64(4*time.Second)))); err != nil {
					b.Fatal(err)
				}
				first := c.Leader("kube-scheduler")
				since := time.Now()
				if err := end.do(c, first); err != nil {
					b.Fatal(err)
				}
				bindOne(b, c, fmt.Sprint("p", len(took)))
				took = append(took, time.Since(since))
				if err := c.StartPlane(first); err != nil {
					b.Fatal(err)
				}
			}
			slices.Sort(took)
			b.ReportMetric(took[len(took)/2].Seconds(), "s/median")
			b.ReportMetric(took[len(took)-1].Seconds(), "s/worst")
		})
	}
}

// contenders are two control planes over one etcd that schedule for one node.
func contenders(b *testing.B) *sim.Cluster {
	st, err := etcd.New(etcd.Options{Dir: b.TempDir(), Name: "bench", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	g := task.NewGroup(context.WithoutCancel(b.Context()))
	g.Go("etcd", st.Run)
	<-st.Ready()
	c, err := sim.Start(g.Context(), sim.Options{Store: st, Nodes: []sim.NodeOptions{{Name: "n"}}})
	if err == nil {
		err = c.Contend("a", "b")
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := c.Stop(); err != nil {
			b.Error(err)
		}
		g.Cancel(context.Canceled)
		if err := g.Wait(); err != nil {
			b.Error(err)
		}
	})
	bindOne(b, c, "first")
	return c
}

// bindOne makes a pod and waits until it has a node.
func bindOne(b *testing.B, c *sim.Cluster, name string) {
	b.Helper()
	pods := client.For(c.API(), core.Pods)
	f := c.API().Cache(core.Pods.Def, "").Follow(cache.FollowOptions{})
	defer f.Close()
	_, err := pods.Create(b.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	})
	if err != nil {
		b.Fatal(err)
	}
	for {
		for _, d := range f.Next() {
			if d.Now == nil {
				continue
			}
			if p := d.Now.Object.(*corev1.Pod); p.Name == name && p.Spec.NodeName != "" {
				return
			}
		}
		select {
		case <-f.Ready():
		case <-b.Context().Done():
			b.Fatal("the pod has no node")
		}
	}
}
