package controller

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/task"
)

// source is a cache of config maps that a test changes.
type source struct {
	client.Transport
	c   *cache.Cache
	rev int64
}

func newSource(names ...string) *source {
	s := &source{c: cache.New(core.ConfigMaps.Def, &cache.Progress{})}
	var items []*cache.Item
	for _, name := range names {
		items = append(items, s.item(name))
	}
	s.c.Replace(items, s.rev)
	s.c.Progress.Advance(s.rev)
	return s
}

func (s *source) Cache(*resource.Def, string) *cache.Cache { return s.c }

func (s *source) item(name string) *cache.Item {
	s.rev++
	return &cache.Item{Key: "default/" + name, Rev: s.rev, Object: &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, ResourceVersion: strconv.FormatInt(s.rev, 10)},
	}}
}

// change sets objects, or with "-" before the name deletes them.
func (s *source) change(names ...string) {
	for _, name := range names {
		if gone, ok := strings.CutPrefix(name, "-"); ok {
			if it := s.c.Get("default/" + gone); it != nil {
				s.rev++
				s.c.Apply([]cache.Change{cache.Gone(it, s.rev)})
			}
		} else {
			s.c.Apply([]cache.Change{{Item: s.item(name)}})
		}
	}
	s.c.Progress.Advance(s.rev)
}

// view is what a watch was told.
type view struct {
	mu    sync.Mutex
	state map[string]int64
	calls int
	leave func()
}

func (v *view) take(d cache.Delta, _ bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.calls++
	if d.Now == nil {
		delete(v.state, d.Prev.Key)
	} else {
		v.state[d.Now.Key] = d.Now.Rev
	}
}

func (v *view) names() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return strings.ReplaceAll(strings.Join(slices.Sorted(maps.Keys(v.state)), " "), "default/", "")
}

func watches(h *hub, s *source) *view {
	v := &view{state: map[string]int64{}}
	_, v.leave = h.join(s.c, v.take)
	return v
}

func TestAllWatchesOfACacheHaveOneFollower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := task.NewGroup(t.Context())
		h := newHub(g, slog.New(slog.DiscardHandler))
		s := newSource("a", "b")
		one, two := watches(h, s), watches(h, s)
		synctest.Wait()
		s.change("c", "-a")
		synctest.Wait()
		late := watches(h, s)
		synctest.Wait()
		for who, v := range map[string]*view{"one": one, "two": two, "late": late} {
			if got := v.names(); got != "b c" {
				t.Errorf("%s was told of %q, want b c", who, got)
			}
		}
		if late.calls != 2 || one.calls != 4 {
			t.Errorf("got %d calls of who came late and %d of who was there, want 2 and 4", late.calls, one.calls)
		}
		if n := len(h.mu.feeds); n != 1 {
			t.Errorf("got %d followers of one cache", n)
		}
		one.leave()
		s.change("d")
		synctest.Wait()
		if one.names() != "b c" || two.names() != "b c d" {
			t.Errorf("who has left was told of %q, who has not of %q", one.names(), two.names())
		}
		two.leave()
		late.leave()
		if n := len(h.mu.feeds); n != 0 {
			t.Errorf("got %d followers of what nobody watches", n)
		}
		synctest.Wait()
		if err := g.Wait(); err != nil { // the bubble holds that nothing goes on
			t.Error(err)
		}
	})
}

// TestWatchesThatComeAndGoMissNothing joins and leaves while changes come. It is
// of most use with -race.
func TestWatchesThatComeAndGoMissNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := task.NewGroup(t.Context())
		h := newHub(g, slog.New(slog.DiscardHandler))
		s := newSource("a", "b")
		rnd := rand.New(rand.NewPCG(1, 1))
		var now []*view
		for range 2000 {
			switch {
			case rnd.IntN(10) == 0 && len(now) < 5:
				now = append(now, watches(h, s))
			case rnd.IntN(10) == 0 && len(now) > 0:
				i := rnd.IntN(len(now))
				now[i].leave()
				now = slices.Delete(now, i, i+1)
			case rnd.IntN(20) == 0:
				synctest.Wait()
				want := map[string]int64{}
				for _, it := range s.c.List("", nil) {
					want[it.Key] = it.Rev
				}
				for _, v := range now {
					if !maps.Equal(v.state, want) {
						t.Fatalf("got %v, want %v", v.state, want)
					}
				}
			default:
				s.change(strings.Repeat("-", rnd.IntN(2)) + fmt.Sprint(rnd.IntN(5)))
			}
		}
		for _, v := range now {
			v.leave()
		}
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
}

// BenchmarkRunAll is what one change costs until ten controllers, which each
// watch 10,000 objects twice, have reconciled it; and what they take when all is done.
func BenchmarkRunAll(b *testing.B) {
	names := make([]string, 10_000)
	for i := range names {
		names[i] = fmt.Sprint("m", i)
	}
	s := newSource(names...)
	const controllers = 10
	done := make(chan string, controllers*len(names))
	var all []*Controller
	for i := range controllers {
		all = append(all, New(Spec[*corev1.ConfigMap]{
			Name: fmt.Sprint("test-controller-", i), For: core.ConfigMaps,
			Watches: []Watch{Mapped(core.ConfigMaps, func(*Kit, *corev1.ConfigMap) []string { return nil })},
			Setup:   func(*Kit) Reconciler[*corev1.ConfigMap] { return notes(done) },
		}))
	}
	before, heap := runtime.NumGoroutine(), heapInUse()
	g := task.NewGroup(b.Context())
	g.Go("controllers", func(ctx context.Context) error {
		return RunAll(ctx, all, Env{As: func(string) client.Transport { return s }, Logger: slog.New(slog.DiscardHandler)})
	})
	for range controllers * len(names) {
		<-done
	}
	goroutines, rest := runtime.NumGoroutine()-before, heapInUse()-heap
	b.ReportAllocs()
	for b.Loop() {
		s.change("m5000")
		for range controllers {
			<-done
		}
	}
	b.ReportMetric(float64(goroutines), "goroutines")
	b.ReportMetric(float64(rest)/1024, "KiB-at-rest")
	g.Cancel(context.Canceled)
	if err := g.Wait(); err != nil {
		b.Fatal(err)
	}
}

func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// notes tells who waits for it of each reconcile.
type notes chan string

func (n notes) Reconcile(_ context.Context, cm *corev1.ConfigMap) (Next, error) {
	n <- cm.Name
	return Done, nil
}
