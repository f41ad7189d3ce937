package local

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/kemudi/kemudi/internal/task"
)

// server says its name to who connects, and then what it hears.
type server struct {
	name string
	l    net.Listener
	mu   struct {
		sync.Mutex
		conns []net.Conn
	}
	wg sync.WaitGroup
}

func newServer(t *testing.T, name, at string) *server {
	t.Helper()
	l, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	s := &server{name: name, l: l}
	s.wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.mu.conns = append(s.mu.conns, conn)
			s.mu.Unlock()
			s.wg.Go(func() {
				fmt.Fprintln(conn, name)
				_, _ = io.Copy(conn, conn)
				_ = conn.Close()
			})
		}
	})
	t.Cleanup(s.die)
	return s
}

func (s *server) url() string { return "https://" + s.l.Addr().String() }

// die ends the server as the kernel ends a process.
func (s *server) die() {
	_ = s.l.Close()
	s.mu.Lock()
	for _, conn := range s.mu.conns {
		_ = conn.(*net.TCPConn).SetLinger(0)
		_ = conn.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
}

// bed is an address that prefers a server.
type bed struct {
	*testing.T
	at      string
	prefer  atomic.Pointer[server]
	address *Address
	end     func()
}

func newBed(t *testing.T, servers ...*server) *bed {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &bed{T: t, at: l.Addr().String()}
	b.address = New(Options{Listener: l, Logger: slog.New(slog.DiscardHandler), Prefer: func() string {
		if s := b.prefer.Load(); s != nil {
			return s.url()
		}
		return ""
	}})
	var urls []string
	for _, s := range servers {
		urls = append(urls, s.url())
	}
	b.address.SetServers(urls)
	g := task.NewGroup(t.Context())
	g.Go("address", b.address.Run)
	b.end = sync.OnceFunc(func() {
		g.Cancel(context.Canceled)
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(b.end)
	return b
}

// connect connects to the address and reads whose it is; nobody: the connection is closed.
func (b *bed) connect() (conn net.Conn, name string) {
	b.Helper()
	conn, err := net.Dial("tcp", b.at)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { conn.Close() })
	if _, err := fmt.Fscanln(conn, &name); err != nil {
		return conn, "nobody"
	}
	return conn, name
}

func (b *bed) want(want string) net.Conn {
	b.Helper()
	conn, got := b.connect()
	if got != want {
		b.Errorf("got a connection to %s, want %s", got, want)
	}
	return conn
}

func TestAddressLeadsToAServerThatLives(t *testing.T) {
	t.Parallel()
	one, two := newServer(t, "one", "127.0.0.1:0"), newServer(t, "two", "127.0.0.1:0")
	b := newBed(t, one, two)
	b.want("one")
	b.prefer.Store(two)
	conn := b.want("two")
	fmt.Fprint(conn, "hello")
	word := make([]byte, 5)
	if _, err := io.ReadFull(conn, word); err != nil || string(word) != "hello" {
		t.Errorf("got %q, %v", word, err)
	}
	two.die()
	if _, err := conn.Read(word); err == nil {
		t.Error("a connection outlives its server")
	}
	b.want("one") // though the other is still preferred
	one.die()
	b.want("nobody")
	newServer(t, "one", one.l.Addr().String())
	b.want("one")
}

func TestConnectionEndsByHalvesAndWithTheAddress(t *testing.T) {
	t.Parallel()
	b := newBed(t, newServer(t, "one", "127.0.0.1:0"))
	conn := b.want("one")
	fmt.Fprint(conn, "last words")
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(conn); err != nil || string(got) != "last words" {
		t.Errorf("after the sending half was closed: got %q, %v", got, err)
	}
	conn = b.want("one")
	b.end()
	if n, err := conn.Read(make([]byte, 1)); err == nil {
		t.Errorf("got %d bytes from an address that has ended", n)
	}
	if _, err := net.Dial("tcp", b.at); err == nil {
		t.Error("it still listens")
	}
}

func TestAddressWithoutServersTakesNobody(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.want("nobody")
	b.address.SetServers([]string{"::", "https://"})
	b.want("nobody")
	if got := hostOf("https://[fd00::1]"); got != "[fd00::1]:443" {
		t.Errorf("got %s", got)
	}
}
