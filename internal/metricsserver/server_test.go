package metricsserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/resource"
)

// bed is a server over nodes n1 and n2, of which each has a pod p1 or p2 with one
// container. That uses a tenth of a processor, and 3 MiB.
type bed struct {
	*Server
	start time.Time
	pods  *cache.Cache

	mu     sync.Mutex
	looks  map[string]int // by node
	broken map[string]error
	begun  time.Time // of the containers' counters
}

func newBed() *bed {
	b := &bed{start: time.Now(), begun: time.Now().Add(-time.Hour), looks: map[string]int{}, broken: map[string]error{}}
	nodes := cache.New(core.Nodes.Def, &cache.Progress{})
	b.pods = cache.New(core.Pods.Def, &cache.Progress{})
	var nodeItems, podItems []*cache.Item
	for i := 1; i <= 2; i++ {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%d", i), Labels: map[string]string{"node": fmt.Sprint(i)}}}
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", Name: fmt.Sprintf("p%d", i), Labels: map[string]string{"pod": fmt.Sprint(i)}, CreationTimestamp: metav1.NewTime(b.begun),
			},
			Spec: corev1.PodSpec{NodeName: n.Name},
		}
		nodeItems, podItems = append(nodeItems, item(n)), append(podItems, item(p))
	}
	nodes.Replace(nodeItems, 1)
	b.pods.Replace(podItems, 1)
	b.Server = New(Options{Ask: b.ask, Nodes: nodes, Pods: b.pods, Logger: slog.New(slog.DiscardHandler)})
	return b
}

func item(obj resource.Object) *cache.Item {
	return &cache.Item{Key: cache.Key(obj.GetNamespace(), obj.GetName()), Rev: 1, Object: obj}
}

func (b *bed) ask(ctx context.Context, node string) (*Sample, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.looks[node]++
	if err := b.broken[node]; err != nil {
		return nil, err
	}
	now := time.Now()
	s := &Sample{Node: Use{CPU: time.Since(b.start).Seconds() / 2, Memory: 5 << 20, At: now}}
	s.Add("default", "p"+strings.TrimPrefix(node, "n"), "main", Use{CPU: time.Since(b.begun).Seconds() / 10, Memory: 3 << 20, At: now})
	return s, ctx.Err()
}

// asked is how often nodes were looked at, in all.
func (b *bed) asked() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.looks["n1"] + b.looks["n2"]
}

// show lists what pods use.
func (b *bed) show(t *testing.T, selector string) string {
	t.Helper()
	sel, err := labels.Parse(selector)
	if err != nil {
		t.Fatal(err)
	}
	all, err := Pods{b.Server}.All(t.Context(), "default", sel)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, obj := range all {
		m := obj.(*metricsv1beta1.PodMetrics)
		u := m.Containers[0].Usage
		out = append(out, fmt.Sprintf("%s %s %s %s", m.Name, u.Cpu(), u.Memory(), m.Window.Duration))
	}
	return strings.Join(out, "\n")
}

func TestNodesAreLookedAtWhenSomebodyAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed()
		time.Sleep(time.Hour)
		if got := b.asked(); got != 0 {
			t.Errorf("%d looks though nobody asked", got)
		}
		before := time.Now()
		if got, want := b.show(t, ""), "p1 100m 3Mi 1s\np2 100m 3Mi 1s"; got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
		if waited, looks := time.Since(before), b.asked(); waited != apart || looks != 4 {
			t.Errorf("the first who asks waited %s for %d looks, want %s and two looks a node", waited, looks, apart)
		}
		time.Sleep(5 * time.Second)
		b.show(t, "")
		if looks := b.asked(); looks != 4 {
			t.Errorf("%d looks, want none for who asks soon after", looks)
		}
		time.Sleep(10 * time.Second)
		if got, want := b.show(t, "pod=2"), "p2 100m 3Mi 15s"; got != want || b.looks["n1"] != 2 || b.looks["n2"] != 3 {
			t.Errorf("got %s and looks %v, want %s, and a look at the node of that pod alone", got, b.looks, want)
		}
		time.Sleep(time.Hour)
		if got, want := b.show(t, "pod=2"), "p2 100m 3Mi 1s"; got != want {
			t.Errorf("after an hour: got %s, want %s: the last look is too old", got, want)
		}
	})
}

func TestManyWhoAskAtOnceCauseOneLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed()
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				if got := b.show(t, "pod=1"); got != "p1 100m 3Mi 1s" {
					t.Errorf("got %q", got)
				}
			})
		}
		wg.Wait()
		if got := b.asked(); got != 2 {
			t.Errorf("%d looks, want 2", got)
		}
	})
}

func TestWhoGivesUpLeavesTheLookToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed()
		ctx, cancel := context.WithTimeout(t.Context(), apart/2)
		defer cancel()
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := (Pods{b.Server}).All(ctx, "default", labels.Everything()); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("who gave up: got %v", err)
			}
		})
		synctest.Wait()
		if got := b.show(t, ""); got != "p1 100m 3Mi 1s\np2 100m 3Mi 1s" {
			t.Errorf("who did not: got %q", got)
		}
		wg.Wait()
	})
}

func TestNodesThatDoNotAnswerAreLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed()
		b.broken["n1"] = errors.New("no route")
		if got := b.show(t, ""); got != "p2 100m 3Mi 1s" {
			t.Errorf("got %q, want p2 alone", got)
		}
		b.show(t, "")
		if b.looks["n1"] != 1 {
			t.Errorf("%d looks, want no second one so soon", b.looks["n1"])
		}
		_, err := Pods{b.Server}.One(t.Context(), "default", "p1")
		if !apierrors.IsNotFound(err) || !strings.Contains(err.Error(), `podmetrics.metrics.k8s.io "default/p1" not found`) {
			t.Errorf("one pod: got %v", err)
		}
		_, err = Nodes{b.Server}.One(t.Context(), "", "n1")
		if !apierrors.IsNotFound(err) || !strings.Contains(err.Error(), `nodemetrics.metrics.k8s.io "n1" not found`) {
			t.Errorf("the node: got %v", err)
		}
		all, err := Nodes{b.Server}.All(t.Context(), "", labels.Everything())
		if err != nil || len(all) != 1 || all[0].(*metricsv1beta1.NodeMetrics).Usage.Cpu().String() != "500m" {
			t.Errorf("nodes: got %v, %v", all, err)
		}
	})
}

func TestCountersThatBeginAnewSayNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed()
		b.show(t, "")
		time.Sleep(15 * time.Second)
		b.begun = time.Now()
		if got := b.show(t, "pod=1"); got != "" {
			t.Errorf("a container that was restarted: got %q", got)
		}
		time.Sleep(15 * time.Second)
		if got := b.show(t, "pod=1"); got != "p1 100m 3Mi 15s" {
			t.Errorf("after the next look: got %q", got)
		}
	})
}

func TestPodsThatHaveEndedUseNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed()
		done := b.pods.Get("default/p1").Object.(*corev1.Pod).DeepCopy()
		done.Status.Phase = corev1.PodSucceeded
		it := item(done)
		it.Rev = 2
		b.pods.Replace([]*cache.Item{it}, 2)
		if got := b.show(t, ""); got != "" || b.asked() != 0 {
			t.Errorf("got %q after %d looks", got, b.asked())
		}
		if _, err := (Pods{b.Server}).One(t.Context(), "default", "p7"); !apierrors.IsNotFound(err) || !strings.Contains(err.Error(), `pods "p7" not found`) {
			t.Errorf("a pod that is not there: got %v", err)
		}
	})
}
