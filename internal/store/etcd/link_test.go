package etcd

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"go.etcd.io/etcd/client/pkg/v3/types"

	"github.com/kemudi/kemudi/test/port"
)

// links are the ways between members, each of which can be cut. Members speak without TLS
// here: whose connection it is stands in its first request.
type links struct {
	*testing.T
	mu struct {
		sync.Mutex
		cut  map[way]bool
		open map[way]map[net.Conn]bool
		all  map[net.Conn]bool // those whose way is not known yet as well
		over bool
		is   map[string]string // the member's name by its ID
	}
}

// way leads from one member to another, by their names.
type way struct{ from, to string }

func newLinks(t *testing.T) *links {
	l := &links{T: t}
	l.mu.cut, l.mu.open, l.mu.all, l.mu.is = map[way]bool{}, map[way]map[net.Conn]bool{}, map[net.Conn]bool{}, map[string]string{}
	return l
}

// peer is a Peer that others reach by a link.
func (l *links) peer(name string) Peer {
	l.Helper()
	at := port.Address(l)
	door, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		l.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := door.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				if l.accept(c) {
					defer l.drop(c)
					l.carry(c, name, at)
				}
			})
		}
	})
	l.Cleanup(func() {
		_ = door.Close()
		l.end()
		wg.Wait()
	})
	return Peer{Listen: "http://" + at, Advertise: "http://" + door.Addr().String()}
}

// named says which member has an ID.
func (l *links) named(id uint64, name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.is[types.ID(id).String()] = name
}

// carry carries a connection to the member at an address until it is cut.
func (l *links) carry(c net.Conn, to, at string) {
	var head bytes.Buffer
	r := bufio.NewReader(io.TeeReader(c, &head))
	req, err := http.ReadRequest(r)
	if err != nil {
		return
	}
	other, err := net.Dial("tcp", at)
	if err != nil {
		return
	}
	defer other.Close()
	if !l.accept(other) {
		return
	}
	defer l.drop(other)
	w, ok := l.enter(req.Header.Get("X-Server-From"), to, c)
	if !ok {
		return
	}
	defer l.leave(w, c)
	first := head.Bytes()
	if w.from == "" { // what follows on the connection may be another's: nothing does
		first = bytes.Replace(first, []byte("\r\n"), []byte("\r\nConnection: close\r\n"), 1)
	}
	if _, err := other.Write(first); err != nil {
		return
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		_, _ = io.Copy(other, c)
		_ = other.(*net.TCPConn).CloseWrite()
	})
	_, _ = io.Copy(c, other)
	_ = c.Close()
	wg.Wait()
}

func (l *links) enter(from, to string, c net.Conn) (w way, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w = way{l.mu.is[from], to}
	if l.mu.cut[w] {
		return w, false
	}
	if l.mu.open[w] == nil {
		l.mu.open[w] = map[net.Conn]bool{}
	}
	l.mu.open[w][c] = true
	return w, true
}

func (l *links) leave(w way, c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.mu.open[w], c)
}

// isolate cuts all ways to a member and from it, of those that have a name.
func (l *links) isolate(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, other := range l.mu.is {
		if other == name {
			continue
		}
		for _, w := range []way{{name, other}, {other, name}} {
			l.mu.cut[w] = true
			for c := range l.mu.open[w] {
				_ = c.Close()
			}
		}
	}
}

// heal makes all ways whole.
func (l *links) heal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.mu.cut)
}

// accept takes note of a connection; false: all have ended.
func (l *links) accept(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.over {
		return false
	}
	l.mu.all[c] = true
	return true
}

func (l *links) drop(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.mu.all, c)
}

// end ends all connections, for members may still keep them: those that are just being made, too.
func (l *links) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.over = true
	for c := range l.mu.all {
		_ = c.Close()
	}
}

func TestLinksCarryWhatIsNotCut(t *testing.T) {
	l := newLinks(t)
	l.named(1, "a")
	l.named(2, "b")
	p := l.peer("b")
	at, err := url.Parse(p.Listen)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", at.Host)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })}
	t.Cleanup(func() { _ = srv.Close() })
	go func() { _ = srv.Serve(listener) }()
	ask := func() error {
		req, err := http.NewRequestWithContext(t.Context(), "POST", p.Advertise, strings.NewReader("hello"))
		if err != nil {
			t.Fatal(err)
		}
		req.Close = true
		req.Header.Set("X-Server-From", "1")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if string(body) != "hello" {
			t.Errorf("got %q, want what was sent", body)
		}
		return err
	}
	if err := ask(); err != nil {
		t.Errorf("a way that is whole: %v", err)
	}
	l.isolate("a")
	if ask() == nil {
		t.Error("a way that is cut: got an answer")
	}
	l.heal()
	if err := ask(); err != nil {
		t.Errorf("a way that was healed: %v", err)
	}
}
