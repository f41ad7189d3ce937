package etcd

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kemudi/kemudi/internal/store"
)

func BenchmarkMembers(b *testing.B) {
	value := make([]byte, 5000)
	for _, members := range []int{1, 3} {
		tr := (&trio{TB: b, sync: true, ca: newAuthority(b)}).grow(members)
		leader := tr.leader()
		asked := map[string]*Server{"leader": tr.servers[leader], "follower": tr.servers[(leader+1)%members]}
		if members == 1 {
			delete(asked, "follower")
		}
		for who, s := range asked {
			for _, clients := range []int{1, 16} {
				b.Run(fmt.Sprintf("members=%d/asked=%s/clients=%d/write", members, who, clients), func(b *testing.B) {
					timed(b, clients, func(n int64) error {
						_, err := s.Txn(b.Context(), store.Txn{Ops: []store.Op{{Key: fmt.Sprintf("/registry/pods/default/%d", n%1000), Value: value}}})
						return err
					})
				})
				b.Run(fmt.Sprintf("members=%d/asked=%s/clients=%d/rev", members, who, clients), func(b *testing.B) {
					timed(b, clients, func(int64) error {
						_, err := s.Rev(b.Context())
						return err
					})
				})
			}
		}
		for _, stop := range tr.stops {
			stop()
		}
	}
}

func timed(b *testing.B, clients int, ask func(n int64) error) {
	var n atomic.Int64
	var mu sync.Mutex
	var all []time.Duration
	b.SetParallelism((clients + 1) / 2)
	b.RunParallel(func(pb *testing.PB) {
		var own []time.Duration
		for pb.Next() {
			start := time.Now()
			if err := ask(n.Add(1)); err != nil {
				b.Error(err)
				return
			}
			own = append(own, time.Since(start))
		}
		mu.Lock()
		defer mu.Unlock()
		all = append(all, own...)
	})
	slices.Sort(all)
	if len(all) > 0 {
		b.ReportMetric(float64(all[len(all)/2].Nanoseconds()), "p50-ns")
	}
}
