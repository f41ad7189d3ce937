package netpolicy

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/client/clienttest"
	"github.com/kemudi/kemudi/internal/podnet/nettest"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/task"
)

// crowded runs an agent on a node whose pods are all selected by 1,000 policies, each of which names
// ten of 10,000 pods of other nodes.
func crowded(b *testing.B) (*clienttest.Filled, *Agent) {
	b.Helper()
	const policies, peers = 1000, 10_000
	host := nettest.New(b, "n1")
	objects := []resource.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, podOf("first", "n1", "10.1.0.1")}
	for i := range policies {
		objects = append(objects, policyOf(b, fmt.Sprint("p", i), fmt.Sprintf(
			`{podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {app: client-%d}}}], ports: [{port: 80}]}]}`, i)))
	}
	for i := range peers {
		p := podOf(fmt.Sprint("peer", i), "n2", fmt.Sprintf("10.2.%d.%d", i/250, i%250))
		p.Labels = map[string]string{"app": fmt.Sprint("client-", i%policies)}
		objects = append(objects, p)
	}
	cluster := clienttest.NewFilled(objects...)
	a, err := New(Options{NodeName: "n1", Transport: cluster})
	if err != nil {
		b.Fatal(err)
	}
	a.open = func() (k *kernel, err error) {
		err = host.Do(func() error {
			k, err = openKernel()
			return err
		})
		return k, err
	}
	g := task.NewGroup(context.WithoutCancel(b.Context()))
	g.Go("agent", a.Run)
	b.Cleanup(func() {
		g.Cancel(context.Canceled)
		if err := g.Wait(); err != nil {
			b.Error(err)
		}
	})
	start := time.Now()
	if err := a.Connected(b.Context(), podOf("second", "n1"), addrsOf("10.1.0.2")); err != nil {
		b.Fatal(err)
	}
	b.Logf("all rules for the first time: %s", time.Since(start))
	return cluster, a
}

// report reports how long it took until rules were in force.
func report(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
}

// BenchmarkPodAmongPolicies is a new pod of the node, from its address to the rules for it.
func BenchmarkPodAmongPolicies(b *testing.B) {
	for name, own := range map[string]bool{"like others": false, "with a policy of its own": true} {
		b.Run(name, func(b *testing.B) {
			cluster, a := crowded(b)
			var took []time.Duration
			i := 0
			for b.Loop() {
				b.StopTimer()
				i++
				p := podOf(fmt.Sprint("new", i), "n1")
				if own {
					p.Labels["only"] = fmt.Sprint("x", i)
					cluster.Put(policyOf(b, "own", fmt.Sprintf(`{podSelector: {matchLabels: {only: x%d}}, ingress: [{ports: [{port: 81}]}]}`, i)))
				}
				cluster.Put(p)
				b.StartTimer()
				start := time.Now()
				if err := a.Connected(b.Context(), p, []netip.Addr{netip.AddrFrom4([4]byte{10, 3, byte(i >> 8), byte(i)})}); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(start))
				b.StopTimer()
				cluster.Remove(p)
				b.StartTimer()
			}
			report(b, took)
		})
	}
}
