package proxy

import (
	"context"
	"fmt"
	"net/netip"
	"runtime"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/kemudi/kemudi/internal/podnet/nettest"
)

// many fills a model with n cluster IP services of two endpoints each.
func many(m *Model, n int) {
	for i := range n {
		name := "svc-" + strconv.Itoa(i)
		m.SetService(service(name, netip.AddrFrom4([4]byte{10, 96 + byte(i>>16), byte(i >> 8), byte(i)}).String(), func(s *corev1.Service) { s.Spec.Ports = s.Spec.Ports[:1] }))
		m.SetSlice(twoEndpoints(name, i))
	}
}

func twoEndpoints(name string, i int) *discoveryv1.EndpointSlice {
	s := backends(name, fmt.Sprintf("10.%d.%d.%d@n2", 128+i>>16, byte(i>>8), byte(i)), fmt.Sprintf("10.%d.%d.%d@n3", 160+i>>16, byte(i>>8), byte(i)))
	s.Ports = s.Ports[:1]
	return s
}

func BenchmarkCompile(b *testing.B) {
	for _, n := range []int{10_000, 30_000} {
		b.Run(fmt.Sprintf("%d-services", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				m := NewModel(Config{NodeName: "n1"})
				many(m, n)
				m.Commit()
			}
		})
	}
}

func kernelIn(b *testing.B) *kernel {
	h := nettest.New(b, "bench")
	var k *kernel
	h.Must(func() (err error) {
		k, err = openKernel()
		return err
	})
	b.Cleanup(k.close)
	return k
}

// BenchmarkApplyFull makes the rules of all services in the kernel, as at a start.
func BenchmarkApplyFull(b *testing.B) {
	for _, n := range []int{10_000, 30_000} {
		b.Run(fmt.Sprintf("%d-services", n), func(b *testing.B) {
			k := kernelIn(b)
			m := NewModel(Config{NodeName: "n1"})
			many(m, n)
			m.Commit()
			full := m.Full()
			b.ReportAllocs()
			for b.Loop() {
				if err := k.Apply(context.Background(), full.Tables[:]...); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkOneEndpoint replaces one endpoint among those of many services: from
// the new slice to the rules in force. shrink takes one away and back, which
// also changes the number of endpoints to pick from.
func BenchmarkOneEndpoint(b *testing.B) {
	for _, n := range []int{100, 10_000, 30_000} {
		for _, kind := range []string{"replace", "shrink"} {
			b.Run(fmt.Sprintf("%s-%d-services", kind, n), func(b *testing.B) {
				k := kernelIn(b)
				m := NewModel(Config{NodeName: "n1"})
				many(m, n)
				m.Commit()
				full := m.Full()
				if err := k.Apply(context.Background(), full.Tables[:]...); err != nil {
					b.Fatal(err)
				}
				i := 0
				b.ReportAllocs()
				for b.Loop() {
					i++
					slice := twoEndpoints("svc-7", 7)
					if kind == "shrink" {
						slice.Endpoints = slice.Endpoints[:1+i%2]
					} else {
						slice.Endpoints[1].Addresses = []string{fmt.Sprintf("10.250.0.%d", 1+i%2)}
					}
					m.SetSlice(slice)
					step := m.Commit()
					if err := k.Apply(context.Background(), step.Tables[:]...); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkOneOfMany replaces one of the 5,000 endpoints of a service, in slices of a
// hundred: from the new slice to the rules in force.
func BenchmarkOneOfMany(b *testing.B) {
	for name, change := range map[string][]func(*corev1.Service){"plain": nil, "ports": {nodePort}, "sticky": {nodePort, sticking}} {
		b.Run(name, func(b *testing.B) {
			const slices, each = 50, 100
			k := kernelIn(b)
			m := NewModel(Config{NodeName: "n1"})
			many(m, 10_000)
			m.SetService(service("web", "10.111.0.10", append(change, func(s *corev1.Service) { s.Spec.Ports = s.Spec.Ports[:1] })...))
			slice := func(i, last int) *discoveryv1.EndpointSlice {
				var eps []string
				for j := range each {
					eps = append(eps, fmt.Sprintf("10.%d.%d.%d@n%d", 200+i%5, i, j, i%7+2))
				}
				eps[each/2] = fmt.Sprintf("10.250.%d.%d@n2", i, last)
				s := backends("web", eps...)
				s.Name, s.Ports = fmt.Sprintf("web-%d", i), s.Ports[:1]
				return s
			}
			for i := range slices {
				m.SetSlice(slice(i, 0))
			}
			m.Commit()
			full := m.Full()
			if err := k.Apply(context.Background(), full.Tables[:]...); err != nil {
				b.Fatal(err)
			}
			changed := [2]*discoveryv1.EndpointSlice{slice(7, 1), slice(7, 2)}
			i := 0
			b.ReportAllocs()
			before := processorTime()
			for b.Loop() {
				i++
				m.SetSlice(changed[i%2])
				step := m.Commit()
				if err := k.Apply(context.Background(), step.Tables[:]...); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64((processorTime()-before).Microseconds())/1000/float64(b.N), "cpu-ms")
		})
	}
}

// BenchmarkMemory reports what the model of many services holds.
func BenchmarkMemory(b *testing.B) {
	const n = 30_000
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		m := NewModel(Config{NodeName: "n1"})
		many(m, n)
		runtime.GC()
		var objects runtime.MemStats
		runtime.ReadMemStats(&objects)
		m.Commit()
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-objects.HeapAlloc)/n, "model-B/service")
		b.ReportMetric(float64(objects.HeapAlloc-before.HeapAlloc)/n, "objects-B/service")
		runtime.KeepAlive(m)
	}
}
