package scheduler

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kemudi/kemudi/internal/api"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/dra"
	"github.com/kemudi/kemudi/internal/apiserver"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/store/mem"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/watchcache"
)

// BenchmarkBind is the way from a pending pod to a bound one, through the API
// server on the memory store: 2,000 pods on 5,000 nodes, which are there before
// the scheduler starts.
func BenchmarkBind(b *testing.B) { benchBind(b, fill) }

// BenchmarkBindDevices is the same on 500 nodes with ten devices each, of which each pod's claim gets
// one: three writes more for each pod.
func BenchmarkBindDevices(b *testing.B) { benchBind(b, fillWithDevices) }

func benchBind(b *testing.B, fill func(b *testing.B, t client.Transport, pods int)) {
	const pods = 2000
	for b.Loop() {
		b.StopTimer()
		st := mem.New(mem.Options{})
		set, err := watchcache.New(watchcache.Options{Store: st, Defs: api.All()})
		if err != nil {
			b.Fatal(err)
		}
		server, err := apiserver.New(apiserver.Options{Store: st, Defs: api.All(), Caches: set})
		if err != nil {
			b.Fatal(err)
		}
		g := task.NewGroup(b.Context())
		g.Go("caches", set.Run)
		g.Go("server", server.Run)
		t := server.As(&user.DefaultInfo{Name: user.KubeScheduler}, "kube-scheduler")
		fill(b, t, pods)
		b.StartTimer()
		began := time.Now()
		g.Go("scheduler", New(Options{Transport: t}).Run)
		left := pods
		err = t.Cache(core.Pods.Def, "").Each(b.Context(), cache.FollowOptions{}, func(deltas []cache.Delta) error {
			for _, d := range deltas {
				if d.Now.Object.(*corev1.Pod).Spec.NodeName != "" {
					left--
				}
			}
			if left == 0 {
				return context.Canceled
			}
			return nil
		})
		if err != context.Canceled {
			b.Fatal(err)
		}
		b.ReportMetric(pods/time.Since(began).Seconds(), "pods/s")
		b.StopTimer()
		g.Cancel(context.Canceled)
		if err := g.Wait(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

func fill(b *testing.B, t client.Transport, pods int) {
	b.Helper()
	must := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	<-t.Cache(core.Pods.Def, "").Synced()
	_, err := client.For(t, core.Namespaces).Create(b.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
	must(err)
	fillNodes(b, t, benchNodes)
	for i := range pods {
		p := parsePod(split(fmt.Sprintf("pod-%d app=web cpu=100m mem=100Mi image=web", i)))
		p.UID = ""
		_, err := client.For(t, core.Pods).Create(b.Context(), p)
		must(err)
	}
}

func fillWithDevices(b *testing.B, t client.Transport, pods int) {
	b.Helper()
	const nodes = 500
	must := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	<-t.Cache(core.Pods.Def, "").Synced()
	_, err := client.For(t, core.Namespaces).Create(b.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
	must(err)
	fillNodes(b, t, nodes)
	_, err = client.For(t, dra.DeviceClasses).Create(b.Context(), benchClass())
	must(err)
	for i := range nodes {
		_, err := client.For(t, dra.ResourceSlices).Create(b.Context(), benchSlice(i, 10))
		must(err)
	}
	for i := range pods {
		name := fmt.Sprintf("pod-%d", i)
		claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
		claim.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu"}}}
		_, err := client.For(t, dra.ResourceClaims).Create(b.Context(), claim)
		must(err)
		p := parsePod(split(name + " cpu=10m image=web uses=" + name))
		p.UID = ""
		_, err = client.For(t, core.Pods).Create(b.Context(), p)
		must(err)
	}
}

func fillNodes(b *testing.B, t client.Transport, nodes int) {
	b.Helper()
	for i := range nodes {
		n := parseNode([]string{fmt.Sprintf("node-%d", i), "cpu=4", fmt.Sprintf("zone=moon-%d", i%3)})
		n.UID = ""
		status := n.Status
		made, err := client.For(t, core.Nodes).Create(b.Context(), n)
		if err != nil {
			b.Fatal(err)
		}
		made = made.DeepCopy()
		made.Status = status
		if _, err = client.For(t, core.Nodes).UpdateStatus(b.Context(), made); err != nil {
			b.Fatal(err)
		}
	}
}
