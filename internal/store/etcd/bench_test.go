package etcd

import (
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"

	"github.com/kemudi/kemudi/internal/store"
)

// BenchmarkTxn writes values of 5 KB as the API server does: read the key's
// absence, then create. The clients are goroutines.
func BenchmarkTxn(b *testing.B) {
	for _, clients := range []int{1, 16} {
		for _, watched := range []bool{false, true} {
			b.Run(fmt.Sprintf("clients=%d/watched=%t", clients, watched), func(b *testing.B) {
				s, stop := run(b, Options{Dir: b.TempDir()})
				defer stop()
				if watched {
					follow(b, s)
				}
				value := make([]byte, 5000)
				var n atomic.Int64
				b.SetParallelism((clients + 1) / 2)
				b.ReportAllocs()
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						key := fmt.Sprintf("/registry/pods/default/%d", n.Add(1))
						if _, err := s.Txn(b.Context(), store.Txn{Conds: []store.Cond{{Key: key}}, Ops: []store.Op{{Key: key, Value: value}}}); err != nil {
							b.Error(err)
							return
						}
					}
				})
			})
		}
	}
}

// BenchmarkTxnHeldByAnother creates a value if another, such as that of its namespace, is as
// it was seen: what that condition costs.
func BenchmarkTxnHeldByAnother(b *testing.B) {
	for _, held := range []bool{false, true} {
		b.Run(fmt.Sprintf("held=%t", held), func(b *testing.B) {
			s, stop := run(b, Options{Dir: b.TempDir(), NoSync: true})
			defer stop()
			const other = "/registry/namespaces/default"
			rev := write(b, s, other, string(make([]byte, 400)))
			value, n := make([]byte, 1000), 0
			b.ReportAllocs()
			for b.Loop() {
				n++
				key := fmt.Sprintf("/registry/configmaps/default/%d", n)
				conds := []store.Cond{{Key: key}}
				if held {
					conds = append(conds, store.Cond{Key: other, Rev: rev})
				}
				if _, err := s.Txn(b.Context(), store.Txn{Conds: conds, Ops: []store.Op{{Key: key, Value: value}}}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkDiskGuard is what each write pays for the disk not to fill up.
func BenchmarkDiskGuard(b *testing.B) {
	g := diskGuard{dir: b.TempDir(), reserve: reserveBytes, log: slog.New(slog.DiscardHandler), commit: func() {}}
	b.ReportAllocs()
	for b.Loop() {
		if err := g.take(1000); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkStart starts on a log of an earlier run, until it is ready. A single
// member waits for no election, whose timer alone would take five seconds.
func BenchmarkStart(b *testing.B) {
	dir := b.TempDir()
	s, stop := run(b, Options{Dir: dir})
	write(b, s, "/a", "x")
	stop()
	b.ReportAllocs()
	for b.Loop() {
		_, stop := run(b, Options{Dir: dir})
		b.StopTimer()
		stop()
		b.StartTimer()
	}
}

// BenchmarkUpdateWatched overwrites keys while a feed follows.
func BenchmarkUpdateWatched(b *testing.B) {
	s, stop := run(b, Options{Dir: b.TempDir(), NoSync: true})
	defer stop()
	follow(b, s)
	value := make([]byte, 5000)
	var n atomic.Int64
	b.SetParallelism(8)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			key := fmt.Sprintf("/registry/pods/default/%d", n.Add(1)%1000)
			if _, err := s.Txn(b.Context(), store.Txn{Ops: []store.Op{{Key: key, Value: value}}}); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// follow runs a feed until the benchmark ends.
func follow(b *testing.B, s *Server) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Watch(b.Context(), "/registry/", 1, func([]store.Change, int64) error { return nil })
	}()
	b.Cleanup(func() { <-done })
}
