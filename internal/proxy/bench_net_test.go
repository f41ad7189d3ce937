package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/api/discovery"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client/clienttest"
	"github.com/kemudi/kemudi/internal/podnet/nettest"
	"github.com/kemudi/kemudi/internal/podnet/nft"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/task"
)

// BenchmarkFullSync is what a start has to do for 30,000 services, from the objects to the rules in the kernel: where
// there are none yet, and where the last process has left them.
func BenchmarkFullSync(b *testing.B) {
	for _, kind := range []string{"new", "again"} {
		b.Run(kind, func(b *testing.B) {
			const n = 30_000
			k := kernelIn(b)
			var kernel time.Duration
			b.ReportAllocs()
			sync := func() {
				m := NewModel(Config{NodeName: "n1"})
				m.Anew()
				many(m, n)
				m.Commit()
				full := m.Full()
				began := kernelTime()
				if err := k.Apply(context.Background(), full.Tables[:]...); err != nil {
					b.Fatal(err)
				}
				kernel += kernelTime() - began
			}
			if kind == "again" {
				sync()
				kernel = 0
			}
			for b.Loop() {
				if kind == "new" {
					b.StopTimer()
					if _, err := k.Remove(context.Background(), tableOf(nft.IPv4), tableOf(nft.IPv6)); err != nil {
						b.Fatal(err)
					}
					b.StartTimer()
				}
				sync()
			}
			b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s/sync")
			b.ReportMetric(kernel.Seconds()/float64(b.N), "kernel-s/sync")
		})
	}
}

// kernelTime is what the kernel has used for this process.
func kernelTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // it cannot fail
	return time.Duration(u.Stime.Nano())
}

// BenchmarkFullByHand makes a table of the same size, from elements that are there already: what a full sync costs
// at the least, and what of that is the kernel's.
func BenchmarkFullByHand(b *testing.B) {
	const n = 30_000
	k := kernelIn(b)
	hand := nft.Table{Family: nft.IPv4, Name: "hand"}
	sets := []nft.Set{kernelSet(ClusterIPs, nft.IPv4), kernelSet(ServiceIPs, nft.IPv4), kernelSet(ServiceEndpoints, nft.IPv4)}
	elems := make([][]nft.Elem, len(sets))
	for i := range n {
		vip := netip.AddrFrom4([4]byte{10, 96 + byte(i>>16), byte(i >> 8), byte(i)})
		elems[0] = append(elems[0], nft.Elem{Key: nft.Key(nil).Addr(vip)})
		elems[1] = append(elems[1], nft.Elem{Key: nft.Key(nil).Addr(vip).Proto(uint8(TCP)).Port(80), Data: nft.Key(nil).Integer(0).Integer(1).Integer(0).Integer(0).Integer(0)})
		for place := range uint32(2) {
			elems[2] = append(elems[2], nft.Elem{Key: nft.Key(nil).Integer(0).Proto(uint8(TCP)).Addr(vip).Port(80).Integer(place), Data: nft.Key(nil).Addr(vip).Port(8080)})
		}
	}
	var kernel time.Duration
	for b.Loop() {
		var batch nft.Batch
		batch.AddTable(hand)
		batch.DelTable(hand)
		batch.AddTable(hand)
		for i, s := range sets {
			batch.AddSet(hand, s)
			batch.AddElems(hand, s.Name, elems[i])
		}
		began := kernelTime()
		if err := k.Conn().Commit(context.Background(), &batch); err != nil {
			b.Fatal(err)
		}
		kernel += kernelTime() - began
	}
	b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s/sync")
	b.ReportMetric(kernel.Seconds()/float64(b.N), "kernel-s/sync")
}

// processorTime is what this process has used.
func processorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // it cannot fail
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkChanges replaces an endpoint of one of 10,000 services a hundred times a second: from the new
// slice in the proxy's cache to the rules in force.
func BenchmarkChanges(b *testing.B) {
	const n, pause = 10_000, 10 * time.Millisecond
	host := nettest.New(b, "n1")
	objects := []resource.Object{&corev1.Node{}}
	objects[0].SetName("n1")
	for i := range n {
		name := fmt.Sprint("svc-", i)
		objects = append(objects, service(name, netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)}).String(), func(s *corev1.Service) { s.Spec.Ports = s.Spec.Ports[:1] }), twoEndpoints(name, i))
	}
	cluster := clienttest.NewFilled(objects...)
	var applied cache.Progress
	var p *Proxy
	host.Must(func() (err error) {
		p, err = New(Options{Config: Config{NodeName: "n1"}, Transport: cluster, Applied: &applied})
		return err
	})
	b.Cleanup(p.Close)
	g := task.NewGroup(context.WithoutCancel(b.Context()))
	g.Go("proxy", p.Run)
	b.Cleanup(func() {
		g.Cancel(context.Canceled)
		if err := g.Wait(); err != nil {
			b.Error(err)
		}
	})
	put := func(i int) int64 {
		name := fmt.Sprint("svc-", i%n)
		slice := twoEndpoints(name, i%n)
		slice.Endpoints[1].Addresses = []string{fmt.Sprintf("10.250.%d.%d", byte(i>>8), byte(i))}
		cluster.Put(slice)
		return cluster.Cache(discovery.EndpointSlices.Def, "").ByIndex(discovery.IndexService, "default/"+name)[0].Rev
	}
	if err := applied.Wait(b.Context(), put(0)); err != nil {
		b.Fatal(err)
	}
	var mu sync.Mutex
	var took []time.Duration
	var wg sync.WaitGroup
	tick := time.NewTicker(pause)
	defer tick.Stop()
	i := 0
	for b.Loop() {
		<-tick.C
		i++
		began := time.Now()
		rev := put(i * 7)
		wg.Go(func() {
			if err := applied.Wait(b.Context(), rev); err == nil {
				mu.Lock()
				took = append(took, time.Since(began))
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	report(b, took, "ms", time.Millisecond)
}

// report reports the half and the slowest in a hundred.
func report(b *testing.B, took []time.Duration, name string, unit time.Duration) {
	if len(took) == 0 {
		b.Fatal("nothing was measured")
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2])/float64(unit), "p50-"+name)
	b.ReportMetric(float64(took[len(took)*99/100])/float64(unit), "p99-"+name)
}

// balanced gives the service an address of a balancer.
func balanced(s *corev1.Service) {
	nodePort(s)
	s.Spec.Type = corev1.ServiceTypeLoadBalancer
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.10"}}
}

// BenchmarkFirstPacket is the way of one new UDP flow there and back: straight to
// the pod, by a map of a set of rules written by hand, and by each kind of frontend among many services.
func BenchmarkFirstPacket(b *testing.B) {
	onOneProcessor(b)
	for _, n := range []int{1, 10_000, 30_000} {
		for _, c := range []struct {
			kind, at string
			change   []func(*corev1.Service)
		}{
			{"straight", "10.2.0.2:8080", nil}, {"hand", "10.111.0.10:80", nil},
			{"plain", "10.111.0.10:80", nil}, {"port", "10.1.0.1:30080", []func(*corev1.Service){nodePort}},
			{"balancer", "192.0.2.10:80", []func(*corev1.Service){balanced}}, {"sticky", "10.111.0.10:80", []func(*corev1.Service){sticking}},
		} {
			b.Run(fmt.Sprintf("%s-%d-services", c.kind, n), func(b *testing.B) {
				client, router, _ := oneBackend(b, "udp")
				if c.kind == "hand" {
					byHand(b, router, n)
				} else {
					rulesOf(b, router, n, service("web", "10.111.0.10", c.change...))
				}
				var took []time.Duration
				client.Must(func() error {
					buf := make([]byte, 100)
					for b.Loop() {
						began := time.Now()
						conn, err := net.Dial("udp", c.at)
						if err != nil {
							return err
						}
						if _, err = conn.Write([]byte("x")); err == nil {
							_, err = conn.Read(buf)
						}
						_ = conn.Close()
						if err != nil {
							return err
						}
						took = append(took, time.Since(began))
					}
					return nil
				})
				report(b, took, "us", time.Microsecond)
			})
		}
	}
}

// onOneProcessor has the whole process run on one processor until b ends. On which of several each side of a
// connection is woken is chance, and worth more than all rules that are measured.
func onOneProcessor(b *testing.B) {
	procs := runtime.GOMAXPROCS(1)
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		b.Fatal(err)
	}
	for i := range len(all) * 64 {
		if all.IsSet(i) {
			one.Set(i)
			break
		}
	}
	set := func(to unix.CPUSet) {
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			b.Fatal(err)
		}
		for _, t := range threads { // those to come have it of the one that makes them
			id, err := strconv.Atoi(t.Name())
			if err == nil {
				err = unix.SchedSetaffinity(id, &to)
			}
			if err != nil && !errors.Is(err, unix.ESRCH) {
				b.Fatal(err)
			}
		}
	}
	set(one)
	b.Cleanup(func() {
		set(all)
		runtime.GOMAXPROCS(procs)
	})
}

// oneBackend makes a client, and a router with a pod behind it.
func oneBackend(b *testing.B, network string) (client, router, pod *nettest.Host) {
	client, router, pod = nettest.New(b, "client"), nettest.New(b, "router"), nettest.New(b, "pod")
	router.Router()
	nettest.Link(router, "to-client", client, "eth0")
	nettest.Link(router, "to-pod", pod, "eth0")
	client.Addr("eth0", "10.1.0.2/24")
	router.Addr("to-client", "10.1.0.1/24")
	router.Addr("to-pod", "10.2.0.1/24")
	pod.Addr("eth0", "10.2.0.2/24")
	client.Route("0.0.0.0/0", "10.1.0.1")
	pod.Route("0.0.0.0/0", "10.2.0.1")
	if network == "udp" {
		pod.Serve("pod", "udp", "10.2.0.2:8080")
	}
	router.Sysctl("net/netfilter/nf_conntrack_udp_timeout", "1")
	return client, router, pod
}

// rulesOf makes the rules of n services and web, whose one pod is behind the router.
func rulesOf(b *testing.B, router *nettest.Host, n int, web *corev1.Service) {
	var k *kernel
	router.Must(func() (err error) {
		k, err = openKernel()
		return err
	})
	b.Cleanup(k.close)
	m := NewModel(Config{NodeName: "n1"})
	many(m, n)
	m.SetService(web)
	m.SetSlice(backends("web", "10.2.0.2@n1"))
	m.Commit()
	full := m.Full()
	if err := k.Apply(context.Background(), full.Tables[:]...); err != nil {
		b.Fatal(err)
	}
}

// byHand makes the shortest rules that there are for n services of one endpoint each: a map.
func byHand(b *testing.B, router *nettest.Host, n int) {
	hand := nft.Table{Family: nft.IPv4, Name: "hand"}
	services := nft.Set{Name: "services", Key: []nft.Field{nft.Addr4, nft.Proto, nft.Port}, Data: []nft.Field{nft.Addr4, nft.Port}}
	elem := func(at, to netip.Addr) nft.Elem {
		return nft.Elem{Key: nft.Key(nil).Addr(at).Proto(uint8(UDP)).Port(80), Data: nft.Key(nil).Addr(to).Port(8080)}
	}
	pod := netip.MustParseAddr("10.2.0.2")
	elems := []nft.Elem{elem(netip.MustParseAddr("10.111.0.10"), pod)}
	for i := range n {
		elems = append(elems, elem(netip.AddrFrom4([4]byte{10, 96 + byte(i>>16), byte(i >> 8), byte(i)}), pod))
	}
	var batch nft.Batch
	batch.AddTable(hand)
	batch.AddSet(hand, services)
	batch.AddElems(hand, services.Name, elems)
	batch.AddChain(hand, "prerouting", &nft.Hook{Type: "nat", Num: unix.NF_INET_PRE_ROUTING, Priority: priorityDNAT})
	batch.AddRule(hand, "prerouting", nft.DestinationAddr(nft.IPv4, nft.R0), nft.TransportProto(nft.R0+1), nft.DestinationPort(nft.R0+2),
		nft.MapTo(nft.Named(services.Name), nft.R0, nft.R0), nft.DNAT(nft.IPv4, nft.R0, nft.R0+1))
	router.Must(func() error {
		conn, err := nft.Open()
		if err != nil {
			return err
		}
		defer conn.Close()
		return conn.Commit(context.Background(), &batch)
	})
}

// BenchmarkStream is a stream over one connection: straight to the pod, and by a service among
// 10,000, in turns.
func BenchmarkStream(b *testing.B) {
	const chunk, each = 256 << 10, 64 << 20
	client, router, pod := oneBackend(b, "tcp")
	rulesOf(b, router, 10_000, service("web", "10.111.0.10"))
	var l net.Listener
	pod.Must(func() (err error) {
		l, err = net.Listen("tcp", "10.2.0.2:8080")
		return err
	})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				_, _ = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{c}, make([]byte, chunk))
				_, _ = io.WriteString(c, "done")
				_ = c.Close()
			})
		}
	})
	b.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
	})
	took := map[string]time.Duration{}
	buf := make([]byte, chunk)
	for b.Loop() {
		for _, at := range []string{"10.2.0.2:8080", "10.111.0.10:80"} {
			conn, err := client.Dial("tcp", at)
			if err != nil {
				b.Fatal(err)
			}
			began := time.Now()
			for range each / chunk {
				if _, err := conn.Write(buf); err != nil {
					b.Fatal(err)
				}
			}
			_ = conn.(*net.TCPConn).CloseWrite()
			if said, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(said), "done") {
				b.Fatalf("got %q, %v", said, err)
			}
			took[at] += time.Since(began)
			_ = conn.Close()
		}
	}
	b.ReportMetric(took["10.2.0.2:8080"].Seconds()/took["10.111.0.10:80"].Seconds(), "of-direct")
}
