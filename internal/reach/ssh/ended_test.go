package ssh

import (
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/kemudi/kemudi/internal/task"
)

// serveOnce is an SSH server that lets anybody in and to everything, until it is closed.
type serveOnce struct {
	config *ssh.ServerConfig
	mu     struct {
		sync.Mutex
		conns []net.Conn
	}
}

func (s *serveOnce) serve(raw net.Conn) {
	s.mu.Lock()
	s.mu.conns = append(s.mu.conns, raw)
	s.mu.Unlock()
	defer raw.Close()
	_, channels, requests, err := ssh.NewServerConn(raw, s.config)
	if err != nil {
		return
	}
	var wg sync.WaitGroup
	wg.Go(func() { ssh.DiscardRequests(requests) })
	for asked := range channels {
		wg.Go(func() {
			ch, requests, err := asked.Accept()
			if err != nil {
				return
			}
			var of sync.WaitGroup
			of.Go(func() { ssh.DiscardRequests(requests) })
			_, _ = io.Copy(io.Discard, ch)
			_ = ch.Close()
			of.Wait()
		})
	}
	wg.Wait()
}

// breakAll ends all connections as a machine does that is gone.
func (s *serveOnce) breakAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.mu.conns {
		_ = c.Close()
	}
	s.mu.conns = nil
}

// Who asks for a channel while the connection ends is told: the library forgets those who
// ask after it has told the others.
func TestDialsEndWithTheirConnection(t *testing.T) {
	b := &bed{T: t, dir: t.TempDir()}
	b.newKey("host")
	b.newKey("user")
	text, err := os.ReadFile(filepath.Join(b.dir, "host"))
	b.must(err)
	host, err := ssh.ParsePrivateKey(text)
	b.must(err)
	s := &serveOnce{config: &ssh.ServerConfig{NoClientAuth: true}}
	s.config.AddHostKey(host)
	b.server = b.site(s.serve)
	t.Cleanup(s.breakAll)

	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(uint64(seed), 0))
	const rounds, dialers = 150, 8
	asked := 0
	for range rounds {
		tunnels, err := New(Options{User: "root", KeyFile: b.file("user"), KnownHosts: b.file("known"), Logger: slog.New(slog.DiscardHandler)})
		b.must(err)
		first, err := tunnels.Dial(t.Context(), b.to("192.0.2.1:1"))
		b.must(err)
		l, kept := tunnels.use("n1")
		if !kept {
			t.Fatal("the login is not kept")
		}
		var wg sync.WaitGroup
		var dials atomic.Int64
		for range dialers {
			wg.Go(func() {
				for {
					dials.Add(1)
					conn, err := l.dial(t.Context(), "192.0.2.1:1")
					if err != nil {
						return
					}
					_ = conn.Close()
				}
			})
		}
		b.must(task.Sleep(t.Context(), time.Duration(random.IntN(2000))*time.Microsecond))
		s.breakAll()
		wg.Wait() // for ever, if one of them is not told
		asked += int(dials.Load())
		_ = first.Close()
		tunnels.drop("n1", l)
	}
	if t.Logf("%d dials", asked); asked <= rounds*dialers {
		t.Errorf("%d dials of %d connections: none of them was answered", asked, rounds)
	}
}
