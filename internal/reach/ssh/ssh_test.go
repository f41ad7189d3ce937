package ssh

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/kemudi/kemudi/internal/task"
)

// program is Debian's SSH server.
const program = "/usr/sbin/sshd"

// bed is a node's SSH server on the loopback, and tunnels to it.
type bed struct {
	*testing.T
	*Tunnels
	dir, server string
	logins      atomic.Int64

	mu struct {
		sync.Mutex
		processes []*os.Process // of the logins
	}
}

func newBed(t *testing.T) *bed {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("an SSH server needs root")
	}
	if _, err := os.Stat(program); err != nil {
		t.Skip("there is no SSH server: apt-get install openssh-server")
	}
	const privilegeDir = "/run/sshd"
	if err := os.MkdirAll(privilegeDir, 0o755); err != nil {
		t.Fatal(err)
	}
	b := &bed{T: t, dir: t.TempDir()}
	b.newKey("host")
	b.newKey("user")
	b.serve()
	b.Tunnels = b.tunnels("user")
	return b
}

func (b *bed) file(name string) string { return filepath.Join(b.dir, name) }

func (b *bed) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// newKey makes a key in a file, and the public one beside it.
func (b *bed) newKey(name string) {
	b.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	b.must(err)
	block, err := ssh.MarshalPrivateKey(private, "")
	b.must(err)
	b.must(os.WriteFile(b.file(name), pem.EncodeToMemory(block), 0o600))
	key, err := ssh.NewPublicKey(public)
	b.must(err)
	b.must(os.WriteFile(b.file(name+".pub"), ssh.MarshalAuthorizedKey(key), 0o600))
}

// serve has a process of the SSH server take each connection, as inetd would.
func (b *bed) serve() {
	config := b.file("config")
	b.must(os.WriteFile(config, fmt.Appendf(nil, "HostKey %s\nAuthorizedKeysFile %s\nUsePAM no\nStrictModes no\nPasswordAuthentication no\nPermitRootLogin yes\n",
		b.file("host"), b.file("user.pub")), 0o600))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	b.must(err)
	b.server = l.Addr().String()
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			file, err := conn.(*net.TCPConn).File()
			conn.Close()
			if err != nil {
				b.Error(err)
				return
			}
			cmd := exec.CommandContext(context.WithoutCancel(b.Context()), program, "-i", "-e", "-f", config)
			cmd.Stdin, cmd.Stdout = file, file
			err = cmd.Start()
			file.Close()
			if err != nil {
				b.Error(err)
				return
			}
			b.logins.Add(1)
			b.mu.Lock()
			b.mu.processes = append(b.mu.processes, cmd.Process)
			b.mu.Unlock()
			wg.Go(func() { _ = cmd.Wait() })
		}
	})
	b.Cleanup(func() {
		l.Close()
		b.kill()
		wg.Wait()
	})
}

// kill ends all logins as a machine does that loses power.
func (b *bed) kill() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.mu.processes {
		_ = p.Kill()
	}
}

// tunnels log in with a key, until the test ends.
func (b *bed) tunnels(key string) *Tunnels {
	b.Helper()
	t, err := New(Options{User: "root", KeyFile: b.file(key), KnownHosts: b.file("known"), Logger: slog.New(slog.DiscardHandler)})
	b.must(err)
	g := task.NewGroup(b.Context())
	g.Go("tunnels", t.Run)
	b.Cleanup(func() {
		g.Cancel(context.Canceled)
		b.must(g.Wait())
	})
	return t
}

// site serves an address until the test ends.
func (b *bed) site(serve func(net.Conn)) string {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	b.must(err)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer conn.Close()
				serve(conn)
			})
		}
	})
	b.Cleanup(func() {
		l.Close()
		b.kill() // else they hold connections
		wg.Wait()
	})
	return l.Addr().String()
}

func (b *bed) to(address string) Target {
	return Target{Node: "n1", Server: b.server, Address: address}
}

func (b *bed) dial(address string) net.Conn {
	b.Helper()
	conn, err := b.Dial(b.Context(), b.to(address))
	b.must(err)
	b.Cleanup(func() { conn.Close() })
	return conn
}

// lastly reads until the other end says that nothing follows, and answers how much there was.
func lastly(conn net.Conn) {
	n, err := io.Copy(io.Discard, conn)
	fmt.Fprint(conn, n, err)
}

func echo(conn net.Conn) { _, _ = io.Copy(conn, conn) }

func TestConnectionsOfANodeShareALogin(t *testing.T) {
	b := newBed(t)
	count := b.site(lastly)
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			conn, err := b.Dial(t.Context(), b.to(count))
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			if _, err := conn.Write(make([]byte, i<<14)); err != nil {
				t.Error(err)
			}
			if err := conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
				t.Error(err)
			}
			got, err := io.ReadAll(conn)
			if want := fmt.Sprint(int64(i<<14), error(nil)); err != nil || string(got) != want {
				t.Errorf("got %q, %v, want %q", got, err, want)
			}
		})
	}
	wg.Wait()
	if got := b.logins.Load(); got != 1 {
		t.Errorf("got %d logins, want one for all", got)
	}
	if got := b.Tunnels.mu.nodes["n1"].uses; got != 0 {
		t.Errorf("%d connections are counted that are closed", got)
	}
}

func TestTargetThatRefusesLeavesTheLogin(t *testing.T) {
	b := newBed(t)
	conn := b.dial(b.site(echo))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	b.must(err)
	l.Close()
	if _, err := b.Dial(t.Context(), b.to(l.Addr().String())); err == nil || !strings.Contains(err.Error(), "by SSH: node n1: ") || !strings.Contains(err.Error(), "onnection refused") {
		t.Errorf("got %v", err)
	}
	fmt.Fprint(conn, "hello")
	word := make([]byte, 5)
	if _, err := io.ReadFull(conn, word); err != nil || string(word) != "hello" || b.logins.Load() != 1 {
		t.Errorf("got %q, %v after %d logins", word, err, b.logins.Load())
	}
}

func TestLoginThatHasEndedIsMadeAgain(t *testing.T) {
	b := newBed(t)
	there := b.site(echo)
	for range 3 {
		conn := b.dial(there)
		fmt.Fprint(conn, "x")
		if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		b.kill()
		if n, err := conn.Read(make([]byte, 1)); err == nil {
			t.Errorf("got %d bytes by a login that has ended", n)
		}
	}
	if got := b.logins.Load(); got != 3 {
		t.Errorf("got %d logins, want 3", got)
	}
}

func TestNodesAreKnownByTheirKeys(t *testing.T) {
	b := newBed(t)
	there := b.site(echo)
	b.dial(there)
	public, err := os.ReadFile(b.file("host.pub"))
	b.must(err)
	if known, err := os.ReadFile(b.file("known")); err != nil || strings.TrimSpace(string(known)) != "n1 "+strings.TrimSpace(string(public)) {
		t.Errorf("the file has %q, %v, want n1 and %q", known, err, public)
	}
	b.kill()
	b.newKey("host") // the node was installed anew, or is another
	other := b.tunnels("user")
	_, err = other.Dial(t.Context(), b.to(there))
	if err == nil || !strings.Contains(err.Error(), "the SSH server of node n1 shows another key than before, SHA256:") || !strings.Contains(err.Error(), b.file("known")) {
		t.Errorf("another key: got %v", err)
	}
	b.must(os.Remove(b.file("known")))
	conn, err := other.Dial(t.Context(), b.to(there))
	b.must(err)
	conn.Close()
	b.must(os.WriteFile(b.file("known"), []byte("what is this\n"), 0o600))
	if _, err := New(Options{User: "root", KeyFile: b.file("user"), KnownHosts: b.file("known")}); err == nil || !strings.Contains(err.Error(), "put back a copy of the file") {
		t.Errorf("a file that is none: got %v", err)
	}
}

func TestNodeRefusesAnotherKeyThanTheServers(t *testing.T) {
	b := newBed(t)
	b.newKey("stranger")
	if _, err := b.tunnels("stranger").Dial(t.Context(), b.to("127.0.0.1:1")); err == nil || !strings.Contains(err.Error(), "log in to node n1 as root: ") || !strings.Contains(err.Error(), "unable to authenticate") {
		t.Errorf("got %v", err)
	}
	_, err := New(Options{User: "root", KeyFile: b.file("none")})
	if err == nil || !strings.Contains(err.Error(), "--ssh-keyfile") || !strings.Contains(err.Error(), "ssh-keygen") {
		t.Errorf("no key: got %v", err)
	}
	b.must(os.WriteFile(b.file("none"), bytes.Repeat([]byte("x"), 100), 0o600))
	if _, err = New(Options{User: "root", KeyFile: b.file("none")}); err == nil || !strings.Contains(err.Error(), "--ssh-keyfile") {
		t.Errorf("what is no key: got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Dial(ctx, b.to("127.0.0.1:1")); !errors.Is(err, context.Canceled) {
		t.Errorf("who has given up: got %v", err)
	}
}

func TestDeadlinesEndConnections(t *testing.T) {
	b := newBed(t)
	conn := b.dial(b.site(func(conn net.Conn) { _, _ = conn.Read(make([]byte, 1)) }))
	b.must(conn.SetReadDeadline(time.Now().Add(time.Millisecond)))
	if n, err := conn.Read(make([]byte, 1)); err == nil {
		t.Errorf("got %d bytes from who says nothing", n)
	}
	conn = b.dial(b.site(lastly))
	b.must(conn.SetWriteDeadline(time.Now()))
	if _, err := conn.Write([]byte("x")); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after the deadline: got %v", err)
	}
	b.must(conn.SetWriteDeadline(time.Time{}))
	fmt.Fprint(conn, "hello")
	b.must(conn.(*connection).CloseWrite())
	if got, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(got), "5") {
		t.Errorf("without one: got %q, %v", got, err)
	}
}
