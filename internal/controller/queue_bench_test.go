package controller

import (
	"context"
	"log/slog"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/kemudi/kemudi/internal/task"
)

// BenchmarkQueue is what it costs to have a key reconciled, by itself: of keys that come one
// after the other, each when the one before is done, and of a thousand at once. Deep
// reconciles use 16 KiB of stack, as those that call the API do.
func BenchmarkQueue(b *testing.B) {
	for _, depth := range []int{0, 32} {
		name := "flat"
		if depth > 0 {
			name = "deep"
		}
		b.Run("trickle/"+name, func(b *testing.B) {
			for r, done := reconciling(b, depth); b.Loop(); done.Wait() {
				done.Add(1)
				r.q.add(inFresh, "key")
			}
		})
		b.Run("burst/"+name, func(b *testing.B) {
			keys := make([]string, 1000)
			for i := range keys {
				keys[i] = strconv.Itoa(i)
			}
			r, done := reconciling(b, depth)
			for b.Loop() {
				done.Add(len(keys))
				for _, key := range keys {
					r.q.add(inFresh, key)
				}
				done.Wait()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(keys)), "ns/key")
		})
	}
}

// BenchmarkChangeAfterStart is how long it takes until a change is looked at that comes when a
// controller has just begun with 10,000 objects, each of which takes 100 us.
func BenchmarkChangeAfterStart(b *testing.B) {
	keys := make([]string, 10000)
	for i := range keys {
		keys[i] = strconv.Itoa(i)
	}
	var waited time.Duration
	for b.Loop() {
		var all sync.WaitGroup
		all.Add(len(keys) + 1)
		looked := make(chan time.Time, 1)
		r := running(b, func(_ context.Context, key string) (Next, error) {
			defer all.Done()
			if key == "changed" {
				looked <- time.Now()
				return Done, nil
			}
			for began := time.Now(); time.Since(began) < 100*time.Microsecond; {
			}
			return Done, nil
		})
		for _, key := range keys {
			r.q.add(inFirst, key)
		}
		began := time.Now()
		r.q.add(inFresh, "changed")
		waited += (<-looked).Sub(began)
		all.Wait()
	}
	b.ReportMetric(float64(waited.Microseconds())/float64(b.N), "us/change")
}

// reconciling returns a runner that runs until the benchmark ends, and what its reconciles
// count down.
func reconciling(b *testing.B, depth int) (*runner, *sync.WaitGroup) {
	done := &sync.WaitGroup{}
	return running(b, func(context.Context, string) (Next, error) {
		sink(depth)
		done.Done()
		return Done, nil
	}), done
}

// running returns a runner that runs until the benchmark ends.
func running(b *testing.B, reconcile func(ctx context.Context, key string) (Next, error)) *runner {
	g := task.NewGroup(b.Context())
	s := shared{workers: task.NewPool(g, "worker", spareWorkers)}
	r := &runner{k: &Kit{c: &Controller{}, Logger: slog.New(slog.DiscardHandler), shared: s}, q: newQueue(nil), reconcile: reconcile}
	g.Go("controller", func(ctx context.Context) error { return r.run(ctx, nil) })
	b.Cleanup(func() {
		g.Cancel(context.Canceled)
		if err := g.Wait(); err != nil {
			b.Error(err)
		}
	})
	return r
}

// sink uses half a KiB of stack for each level of depth.
//
//go:noinline
func sink(depth int) (sum byte) {
	var frame [512]byte
	if depth > 0 {
		frame[depth] = sink(depth - 1)
	}
	for _, b := range frame {
		sum += b
	}
	return sum
}
