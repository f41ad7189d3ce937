package leader_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/sim"
	"github.com/kemudi/kemudi/internal/store/mem"
	"github.com/kemudi/kemudi/internal/task"
)

// subject is one of the things that a life is about: what is asked for, by any of the servers, and
// what must hold whatever happens to them.
type subject interface {
	begin(l *life)                          // what is asked for first
	act(l *life)                            // what is asked for on the way
	rest(l *life)                           // what is wanted in the end
	see(w *world, was, now resource.Object) // looks at a change of an object; nil: it was not there, or is not any more
	hold(w *world)                          // looks at what there is after a revision
	end(w *world)                           // looks at what there is in the end
}

// subjects makes one of each.
var subjects = []func(rng *rand.Rand) subject{newStateful, newRollout, newDaemons, newBudget, newQuota, newSchedule, newFamilies}

// life is a random life of several control planes over one store, with what is asked of them.
type life struct {
	fates
	asks *task.Group
}

// TestWhatMustHoldHoldsInEveryLife has two or three control planes lead, be killed, stopped and frozen in
// the middle of their writes, while clients of all of them ask for this and that. Every revision
// of the store is looked at. KEMUDI_SEED plays one seed again.
func TestWhatMustHoldHoldsInEveryLife(t *testing.T) {
	var late, changes atomic.Int64
	t.Run("seeds", func(t *testing.T) {
		sim.Seeds(t, 6, func(t *testing.T, rng *rand.Rand) {
			synctest.Test(t, func(t *testing.T) {
				n, m := live(t, rng)
				late.Add(int64(n))
				changes.Add(int64(m))
			})
		})
	})
	if !sim.Replays() && (late.Load() == 0 || changes.Load() == 0) {
		t.Errorf("got %d late writes and %d changes of leaders: nothing was tested", late.Load(), changes.Load())
	}
}

func live(t *testing.T, rng *rand.Rand) (late, changes int) {
	under := mem.New(mem.Options{})
	c, err := sim.Start(t.Context(), sim.Options{Store: sim.NewSlow(under, rng.Uint64())})
	if err != nil {
		t.Fatal(err)
	}
	l := &life{fates: fates{T: t, rng: rng, c: c, alive: []string{"a", "b", "c"}[:2+rng.IntN(2)]}, asks: task.NewGroup(t.Context())}
	defer func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	}()
	for i := range 4 {
		if err := c.AddNode(sim.NodeOptions{Name: fmt.Sprint("n", i)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Contend(l.alive...); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, drawn(rng))
	watch := task.NewGroup(t.Context())
	watch.Go("watch", func(ctx context.Context) error { return w.follow(ctx, under) })
	l.play(w)
	busy, err := c.Restless(t.Context())
	l.must(nil, err)
	if len(busy) > 0 {
		l.Errorf("in the end there is no rest: %v", busy)
	}
	watch.Cancel(context.Canceled)
	l.must(nil, watch.Wait())
	w.orphans()
	for _, s := range w.subjects {
		s.end(w)
	}
	return l.lateWrites(), l.transitions()
}

// drawn are some of the subjects: few at a time meet more often.
func drawn(rng *rand.Rand) []subject {
	var some []subject
	for _, i := range rng.Perm(len(subjects))[:1+rng.IntN(4)] {
		some = append(some, subjects[i](rng))
	}
	return some
}

// play is the life until nobody asks for anything any more.
func (l *life) play(w *world) {
	l.Helper()
	for _, s := range w.subjects {
		s.begin(l)
	}
	time.Sleep(time.Minute)
	for range 16 {
		acts := func() {
			for _, s := range w.subjects {
				if l.rng.IntN(2) == 0 {
					s.act(l)
				}
			}
		}
		if l.rng.IntN(2) == 0 {
			l.fate()
			acts()
		} else {
			acts()
			time.Sleep(time.Duration(l.rng.IntN(1500)) * time.Millisecond) // they are in the middle of it
			l.fate()
		}
		time.Sleep(time.Duration(l.rng.IntN(20)) * time.Second)
	}
	l.revive()
	l.must(nil, l.asks.Wait())
	for _, s := range w.subjects {
		s.rest(l)
	}
}

// sleep lets time pass.
func (l *life) sleep(d time.Duration) { time.Sleep(d) }

// server is one of those that serve the API, frozen or not.
func (l *life) server() client.Transport {
	if i := l.rng.IntN(1 + len(l.alive)); i > 0 {
		return l.c.PlaneAPI(l.alive[i-1])
	}
	return l.c.API()
}

// ask asks one of the servers for something, beside all else. Who is killed or frozen answers with anything,
// late, or not at all.
func (l *life) ask(do func(ctx context.Context, t client.Transport) error) {
	t := l.server()
	l.asks.Go("ask", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		_ = do(ctx, t) // judged by what there is
		return nil
	})
}

// merge changes an object.
func merge[T resource.Object](ctx context.Context, t client.Transport, def *resource.Resource[T], name, patch string) error {
	_, err := client.For(t, def).Patch(ctx, "default", name, "", client.Patch{Type: types.MergePatchType, Data: []byte(patch)})
	return err
}

// create makes what a subject begins with.
func create[T resource.Object](l *life, def *resource.Resource[T], obj T) {
	l.Helper()
	obj.SetNamespace("default")
	l.must(client.For(l.c.API(), def).Create(l.Context(), obj))
}

// served is a template of pods of an application that take a moment to be ready, and to end.
func served(rng *rand.Rand, app string) corev1.PodTemplateSpec {
	return template(app, corev1.RestartPolicyAlways, map[string]string{
		"sim.kemudi.io/ready-after": fmt.Sprintf("%ds", rng.IntN(4)), "sim.kemudi.io/stop-after": fmt.Sprintf("%ds", rng.IntN(4)),
	})
}

// version is a patch of a template that makes it another, or one that was there before.
func version(rng *rand.Rand) string {
	return fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{"version":"%d"}}}}}`, rng.IntN(3))
}

func versionOf(p *corev1.Pod) string { return p.Annotations["version"] }

// among draws one.
func among[T any](rng *rand.Rand, list []T) (one T, ok bool) {
	if len(list) == 0 {
		return one, false
	}
	return list[rng.IntN(len(list))], true
}
