package proxy

import (
	"context"
	"fmt"
	"net"
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
				if err := k.apply(context.Background(), full.Tables[:]); err != nil {
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
				if err := k.apply(context.Background(), full.Tables[:]); err != nil {
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
					if err := k.apply(context.Background(), step.Tables[:]); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkFirstPacket is the way of one new UDP flow there and back: straight to
// the pod, and by a cluster IP among many.
func BenchmarkFirstPacket(b *testing.B) {
	for _, n := range []int{0, 1, 10_000, 30_000} {
		name := fmt.Sprintf("%d-services", n)
		if n == 0 {
			name = "straight"
		}
		b.Run(name, func(b *testing.B) {
			client, router, pod := nettest.New(b, "client"), nettest.New(b, "router"), nettest.New(b, "pod")
			router.Router()
			nettest.Link(router, "to-client", client, "eth0")
			nettest.Link(router, "to-pod", pod, "eth0")
			client.Addr("eth0", "10.1.0.2/24")
			router.Addr("to-client", "10.1.0.1/24")
			router.Addr("to-pod", "10.2.0.1/24")
			pod.Addr("eth0", "10.2.0.2/24")
			client.Route("0.0.0.0/0", "10.1.0.1")
			pod.Route("0.0.0.0/0", "10.2.0.1")
			pod.Serve("pod", "udp", "10.2.0.2:8080")
			var k *kernel
			router.Must(func() (err error) {
				k, err = openKernel()
				return err
			})
			b.Cleanup(k.close)
			router.Sysctl("net/netfilter/nf_conntrack_udp_timeout", "1")
			m := NewModel(Config{NodeName: "n1"})
			many(m, n)
			web := service("web", "10.111.0.10")
			m.SetService(web)
			m.SetSlice(backends("web", "10.2.0.2@n1"))
			m.Commit()
			full := m.Full()
			if err := k.apply(context.Background(), full.Tables[:]); err != nil {
				b.Fatal(err)
			}
			at := "10.111.0.10:80"
			if n == 0 {
				at = "10.2.0.2:8080"
			}
			client.Must(func() error {
				buf := make([]byte, 100)
				for b.Loop() {
					c, err := net.Dial("udp", at)
					if err != nil {
						return err
					}
					if _, err = c.Write([]byte("x")); err == nil {
						_, err = c.Read(buf)
					}
					_ = c.Close()
					if err != nil {
						return err
					}
				}
				return nil
			})
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
