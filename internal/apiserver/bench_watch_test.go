package apiserver

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/client"
)

// BenchmarkWatchDelivery changes a pod of about 5 KB that many watch over TLS, ten
// on a connection, from a process of its own: cpu-us/event is the server's for each
// watch that is told, the change included. An idle watch has seen nothing yet.
func BenchmarkWatchDelivery(b *testing.B) {
	for _, watches := range []int{200, 1000} {
		b.Run(strconv.Itoa(watches), func(b *testing.B) {
			f := newFixture(b)
			fill(b, f, 1)
			before := inUse()
			c := f.watchClient(b, watches)
			idle := inUse() - before
			pods := client.For(f.As(admin, "kubelet/1"), core.Pods)
			pod, err := pods.Get(b.Context(), "ns-0", realPod(0).Name)
			if err != nil {
				b.Fatal(err)
			}
			round, wall := 1, time.Duration(0)
			change := func() {
				round++
				pod = pod.DeepCopy()
				setStatus(pod, round)
				start := time.Now()
				if pod, err = pods.UpdateStatus(b.Context(), pod); err != nil {
					b.Fatal(err)
				}
				c.await(b, "seen")
				wall += time.Since(start)
			}
			change()
			wall = 0
			used := processTime(b)
			for b.Loop() {
				change()
			}
			used = processTime(b) - used
			b.ReportMetric(float64(used.Nanoseconds())/1000/float64(b.N*watches), "cpu-us/event")
			b.ReportMetric(float64(idle)/float64(watches)/(1<<10), "idle-KiB/watch")
			b.ReportMetric(float64(wall.Microseconds())/float64(b.N)/1000, "all-ms")
		})
	}
}

// watchClient tells a process that it is the client of a benchmark: a URL and a
// number of watches.
const watchClient = "KEMUDI_TEST_WATCH_CLIENT"

// watchesOfClient is how many of its watches share a connection.
const watchesOfClient = 10

// TestWatchClient is the client's side of BenchmarkWatchDelivery: it says when all
// watches are open, and when all have seen one more event.
func TestWatchClient(t *testing.T) {
	args := strings.Fields(os.Getenv(watchClient))
	if len(args) != 2 {
		t.Skip("is for a benchmark")
	}
	watches, err := strconv.Atoi(args[1])
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var open, seen atomic.Int64
	for range watches / watchesOfClient {
		transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true, DisableCompression: true}
		defer transport.CloseIdleConnections()
		for range watchesOfClient {
			wg.Go(func() {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, args[0], nil)
				if err != nil {
					t.Error(err)
					return
				}
				res, err := transport.RoundTrip(r)
				if err != nil {
					t.Error(err)
					return
				}
				defer res.Body.Close()
				if open.Add(1) == int64(watches) {
					fmt.Println("open")
				}
				buf := make([]byte, 32<<10)
				for {
					n, err := res.Body.Read(buf)
					for range bytes.Count(buf[:n], []byte("\n")) {
						if seen.Add(1)%int64(watches) == 0 {
							fmt.Println("seen")
						}
					}
					if err != nil {
						return // the server has ended
					}
				}
			})
		}
	}
	wg.Wait()
}

// watchingClient is a process that watches.
type watchingClient struct{ said *bufio.Scanner }

// watchClient starts a process that watches pods, and returns when it does.
func (f *fixture) watchClient(b *testing.B, watches int) *watchingClient {
	b.Helper()
	url := "https://" + f.serveTLS() + "/api/v1/pods?watch=1&resourceVersion=" + strconv.FormatInt(f.o.Caches.Cache(core.Pods.Def).Rev(), 10)
	cmd := exec.CommandContext(b.Context(), os.Args[0], "-test.run=^TestWatchClient$", "-test.count=1")
	cmd.Env = append(os.Environ(), fmt.Sprint(watchClient, "=", url, " ", watches))
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait() // it ends when the server's connections do, or by the context
	})
	c := &watchingClient{bufio.NewScanner(out)}
	c.await(b, "open")
	return c
}

// await returns when the client says so.
func (c *watchingClient) await(b *testing.B, word string) {
	for c.said.Scan() {
		if c.said.Text() == word {
			return
		}
	}
	b.Fatalf("the client has ended: %v", c.said.Err())
}

// inUse is the memory of this process's heap and stacks.
func inUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}
