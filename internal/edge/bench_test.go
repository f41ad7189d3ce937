package edge

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kemudi/kemudi/internal/edge/route"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/test/nginx"
)

// answerEnd ends the answer of the backend.
const answerEnd = "that is all\n"

// plainBackend answers each request with the same, so that it costs as little as can be.
func plainBackend(b *testing.B) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	text := fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s", len(answerEnd), answerEnd)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				buf, n := make([]byte, 8<<10), 0
				for {
					got, err := c.Read(buf[n:])
					if n += got; err != nil {
						return
					}
					if bytes.HasSuffix(buf[:n], []byte("\r\n\r\n")) {
						n = 0
						if _, err := c.Write(text); err != nil {
							return
						}
					}
				}
			})
		}
	})
	b.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
	})
	return l.Addr().String()
}

// edgeBefore runs an edge with so many hosts before a backend, and returns where it serves.
func edgeBefore(b *testing.B, hosts int, backend string) string {
	sites := map[string]*route.Site{}
	for i := range hosts {
		name := fmt.Sprintf("h%d.example.com", i)
		sites[name] = &route.Site{Key: name, Rules: []route.Rule{{Host: name, Type: route.Prefix, Upstream: "web"}}}
	}
	return edgeTold(b, Order{Generation: 1, Ports: &Ports{HTTP: httpPort}, Change: route.Change{Sites: sites, Upstreams: map[string]*route.Upstream{"web": {Endpoints: []string{backend}}}}})
}

// edgeTold is an edge that has an order, and returns the address of its only port.
func edgeTold(b *testing.B, order Order) string {
	socket, err := net.Listen("unix", filepath.Join(b.TempDir(), "s"))
	if err != nil {
		b.Fatal(err)
	}
	at := make(chan string, 3)
	e := New(Options{Control: socket, Version: "v1", Listen: func(ctx context.Context, network, _ string) (net.Listener, error) {
		l, err := (&net.ListenConfig{}).Listen(ctx, network, "127.0.0.1:0")
		if err == nil {
			at <- l.Addr().String()
		}
		return l, err
	}})
	g := task.NewGroup(context.WithoutCancel(b.Context()))
	g.Go("edge", e.Run)
	conn, err := net.Dial("unix", socket.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	c := NewControl(conn)
	b.Cleanup(func() {
		_ = c.Close()
		g.Cancel(context.Canceled)
		if err := g.Wait(); err != nil {
			b.Error(err)
		}
	})
	if err := c.Send(order); err != nil {
		b.Fatal(err)
	}
	for {
		var r Report
		if err := c.Receive(&r); err != nil {
			b.Fatal(err)
		}
		if r.Applied == 1 {
			break
		}
	}
	return <-at
}

// nginxBefore runs nginx before a backend; empty: this machine has none.
func nginxBefore(b *testing.B, backend string) string {
	program, err := exec.LookPath("nginx")
	if err != nil {
		return ""
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	at, dir := l.Addr().String(), b.TempDir()
	_ = l.Close() // it is to listen there itself
	conf := nginx.Conf(dir, backend, "listen "+at+"; server_name h0.example.com;")
	file := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(program, "-p", dir, "-c", file)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	for end := time.Now().Add(10 * time.Second); ; {
		c, err := net.Dial("tcp", at)
		if err == nil {
			_ = c.Close()
			return at
		}
		if time.Now().After(end) {
			b.Fatal(err)
		}
	}
}

// load asks for so long over 32 connections, and returns how long each request took, in order.
func load(b *testing.B, at string, last string, long time.Duration) (took []time.Duration) {
	const clients = 32
	request := []byte("GET /some/path?with=query HTTP/1.1\r\nHost: " + last + "\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n")
	var (
		wg  sync.WaitGroup
		all [clients][]time.Duration
	)
	end := time.Now().Add(long)
	for i := range clients {
		wg.Go(func() {
			c, err := net.Dial("tcp", at)
			if err != nil {
				b.Error(err)
				return
			}
			defer c.Close()
			buf := make([]byte, 8<<10)
			for began := time.Now(); began.Before(end); began = time.Now() {
				if _, err := c.Write(request); err != nil {
					b.Error(err)
					return
				}
				for n := 0; !bytes.HasSuffix(buf[:n], []byte(answerEnd)); {
					got, err := c.Read(buf[n:])
					if n += got; err != nil {
						b.Errorf("got %q, %v", buf[:n], err)
						return
					}
				}
				all[i] = append(all[i], time.Since(began))
			}
		})
	}
	wg.Wait()
	took = slices.Concat(all[:]...)
	slices.Sort(took)
	return took
}

// BenchmarkRequests asks an edge and, where there is one, nginx before the same backend, by turns of a second: by
// HTTP/1.1, over connections that are kept. Client, backend and edge are in one process, and share the processors with nginx.
func BenchmarkRequests(b *testing.B) {
	for _, hosts := range []int{1, 10_000} {
		b.Run(fmt.Sprintf("%d-hosts", hosts), func(b *testing.B) {
			backend := plainBackend(b)
			ours, theirs := edgeBefore(b, hosts, backend), nginxBefore(b, backend)
			var n, other float64
			var slow, slowOther time.Duration
			for b.Loop() {
				took := load(b, ours, fmt.Sprintf("h%d.example.com", hosts-1), time.Second)
				if b.Failed() {
					return
				}
				n, slow = n+float64(len(took)), slow+took[len(took)*99/100]
				if theirs != "" {
					took = load(b, theirs, "h0.example.com", time.Second)
					other, slowOther = other+float64(len(took)), slowOther+took[len(took)*99/100]
				}
			}
			b.ReportMetric(n/float64(b.N), "req/s")
			b.ReportMetric(float64(slow.Microseconds())/float64(b.N), "p99-us")
			if theirs != "" {
				b.ReportMetric(other/float64(b.N), "nginx-req/s")
				b.ReportMetric(n/other, "of-nginx")
				b.ReportMetric(slow.Seconds()/slowOther.Seconds(), "p99-of-nginx")
			}
		})
	}
}
