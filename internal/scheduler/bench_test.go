package scheduler

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/scheduler/snapshot"
)

const benchNodes = 5000

// benchCases are upstream's performance cases at 5,000 nodes. Each pod is parsed,
// decided and put on its node; what it takes to bind it is measured elsewhere.
var benchCases = []struct {
	name    string
	pod     string
	running int // pods there from the start
	most    int // pods to schedule before starting anew
}{
	{"plain", "app=a cpu=100m mem=500Mi", 5000, 50000},
	{"node affinity", "app=a cpu=100m mem=500Mi 'affinity=zone in (moon-1,moon-2)'", 5000, 50000},
	{"rare node affinity", "app=a cpu=100m mem=500Mi 'affinity=rare in (yes)'", 5000, 1000},
	{"pod anti-affinity", "color=green cpu=100m mem=500Mi apart=host:color=green", 1000, 3000},
	{"pod affinity", "color=green cpu=100m mem=500Mi near=zone:color=green", 5000, 50000},
	{"topology spread", "color=blue cpu=100m mem=500Mi spread=zone:5:color=blue", 5000, 50000},
	{"topology spread over nodes", "color=blue cpu=100m mem=500Mi spread=host:1:color=blue", 5000, 50000},
	{"default spread of a service", "app=web cpu=100m mem=500Mi", 5000, 50000},
	{"preferred pod anti-affinity", "color=red cpu=100m mem=500Mi wantapart=10:host:color=red", 5000, 50000},
	{"unschedulable", "cpu=64", 5000, 50000},
}

func benchCluster(pod string, running int) *cycle {
	snap := snapshot.New(nil)
	snap.SetNamespace("default", nil)
	snap.SetService("default", "web", map[string]string{"app": "web"})
	for i := range benchNodes {
		words := []string{fmt.Sprintf("node-%d", i), "cpu=16", "mem=64Gi", fmt.Sprintf("zone=moon-%d", i%3+1)}
		if i%100 == 0 {
			words = append(words, "rare=yes")
		}
		snap.SetNode(parseNode(words))
	}
	for i := range running {
		p := parsePod(append([]string{fmt.Sprintf("running-%d", i)}, split(pod)...))
		p.Spec.NodeName = fmt.Sprintf("node-%d", i%benchNodes)
		snap.Add(snap.NewPod(p), p.Spec.NodeName)
	}
	return newCycle(snap)
}

func BenchmarkCycle(b *testing.B) {
	for _, bc := range benchCases {
		b.Run(bc.name, func(b *testing.B) {
			b.ReportAllocs()
			c := benchCluster(bc.pod, bc.running)
			template := parsePod(append([]string{"pod"}, split(bc.pod)...))
			placed, total := 0, 0
			var spent time.Duration
			for b.Loop() {
				if placed == bc.most {
					b.StopTimer()
					c, placed = benchCluster(bc.pod, bc.running), 0
					b.StartTimer()
				}
				obj := *template // as decoded: everything its own, but for what is immutable
				obj.UID = types.UID(fmt.Sprintf("pod-%d", total))
				started := time.Now()
				scheduleOne(b, c, &obj)
				spent += time.Since(started)
				placed++
				total++
			}
			b.ReportMetric(float64(total)/spent.Seconds(), "pods/s")
		})
	}
}

func scheduleOne(b *testing.B, c *cycle, obj *corev1.Pod) {
	p := c.snapshot.NewPod(obj)
	d := c.decide(p)
	switch {
	case d.err != nil:
		b.Fatal(d.err)
	case d.node != nil:
		c.snapshot.Add(p, d.node.Name)
	case obj.Spec.Containers[0].Resources.Requests.Cpu().Value() < 64:
		b.Fatal(d.unfit.message())
	default:
		_ = d.unfit.message()
	}
}
