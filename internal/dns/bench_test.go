package dns

import (
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// BenchmarkQuestions asks over UDP from eight clients at a time: for a name of the cluster,
// for one that other servers have told before, and, of a Corefile without the cluster's
// names, for one of CoreDNS' own plugins.
func BenchmarkQuestions(b *testing.B) {
	for _, c := range []struct{ name, corefile, question string }{
		{"cluster", "", "web.shop.svc.cluster.local."},
		{"remembered", "", "www.example.org."},
		{"hosts", ".:53 {\n errors\n hosts {\n  10.96.0.88 web.shop.svc.cluster.local\n }\n loadbalance\n}\n", "web.shop.svc.cluster.local."},
	} {
		b.Run(c.name, func(b *testing.B) {
			r := run(b, shop)
			world, _ := upstream(b, "192.0.2.1")
			r.settings("  upstreamNameservers: '[\"" + world + "\"]'\n")
			if c.corefile != "" {
				r.corefile(c.corefile)
			}
			want := "A 10.96.0.88"
			if c.name == "remembered" {
				want = "A 192.0.2.1"
			}
			r.soon(c.question, "NOERROR", want)
			b.ReportAllocs()
			ask(b, r.where("udp", dnsAt), c.question)
		})
	}
}

// ask asks b.N times, and reports how long the slowest in a hundred takes.
func ask(b *testing.B, at, name string) {
	b.Helper()
	const clients = 8
	var (
		wg   sync.WaitGroup
		took [clients][]time.Duration
	)
	b.ResetTimer()
	for i := range clients {
		wg.Go(func() {
			c, err := dns.Dial("udp", at)
			if err != nil {
				b.Error(err)
				return
			}
			defer c.Close()
			for range b.N/clients + 1 {
				began := time.Now()
				if err := c.WriteMsg(new(dns.Msg).SetQuestion(name, dns.TypeA)); err != nil {
					b.Error(err)
					return
				}
				if m, err := c.ReadMsg(); err != nil || len(m.Answer) != 1 {
					b.Errorf("got %v, %v", m, err)
					return
				}
				took[i] = append(took[i], time.Since(began))
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	all := slices.Concat(took[:]...)
	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), "p99-us")
	b.ReportMetric(float64(len(all))/b.Elapsed().Seconds(), "queries/s")
}

// BenchmarkStart starts a server and ends it.
func BenchmarkStart(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		r := run(b, shop)
		r.stop()
	}
}

// BenchmarkMemory is what a server that answers keeps on the heap.
func BenchmarkMemory(b *testing.B) {
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc + m.StackInuse
	}
	for b.Loop() {
		before := heap()
		var servers []*running
		for range 10 {
			servers = append(servers, run(b, ""))
		}
		b.ReportMetric((float64(heap())-float64(before))/float64(len(servers))/1024, "KiB/server")
		for _, r := range servers {
			r.stop()
		}
	}
}
