package linger

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// ask opens a connection to a server and asks for something by it.
func ask(t *testing.T, s *httptest.Server) net.Conn {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if s.TLS != nil {
		conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
	}
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: here\r\n\r\nearly"); err != nil {
		t.Fatal(err)
	}
	return conn
}

func TestPeerThatIsSlowAndSendsGetsAllThatWasWritten(t *testing.T) {
	t.Parallel()
	const size = 512 << 10
	for name, start := range map[string]func(http.Handler) *httptest.Server{"plain": httptest.NewServer, "TLS": httptest.NewTLSServer} {
		closed := make(chan struct{})
		s := start(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			held := Hold(r.Context(), w, nil)
			defer held.Finish()
			conn, in, err := http.NewResponseController(held).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			early := make([]byte, 5)
			if _, err := io.ReadFull(in, early); err != nil || string(early) != "early" {
				t.Errorf("%s: sent with the request: got %q, %v", name, early, err)
			}
			raw := conn.(interface{ unwrap() net.Conn }).unwrap()
			if secured, ok := raw.(*tls.Conn); ok {
				raw = secured.NetConn()
			}
			if err := raw.(*net.TCPConn).SetWriteBuffer(4 * size); err != nil {
				t.Error(err)
			}
			if _, err := conn.Write(make([]byte, size)); err != nil {
				t.Error(err)
			}
			if err := conn.Close(); err != nil {
				t.Error(err)
			}
			close(closed)
		}))
		conn := ask(t, s)
		<-closed
		n := 0
		buf := make([]byte, 32<<10)
		for i := 0; ; i++ {
			if i < 3 {
				if _, err := io.WriteString(conn, "ping"); err != nil {
					t.Errorf("%s: ping: %v", name, err)
				}
			}
			m, err := conn.Read(buf)
			n += m
			if err != nil {
				if err != io.EOF || n != size {
					t.Errorf("%s: got %d bytes, then %v; want %d, then the end", name, n, err, size)
				}
				break
			}
		}
		conn.Close()
		s.Close()
	}
}

// unwrap is for the test to set sizes of buffers.
func (c *conn) unwrap() net.Conn { return c.Conn }

func TestConnectionEndsWithItsContextAndTellsOfTheClientsEnd(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	gone, reading := make(chan struct{}), make(chan struct{}, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		held := Hold(ctx, w, func() { close(gone) })
		defer held.Finish()
		conn, in, err := held.Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		reading <- struct{}{}
		_, _ = io.Copy(io.Discard, in) // until one of both ends it
	}))
	defer s.Close()
	conn := ask(t, s)
	<-reading
	conn.Close()
	<-gone
	gone = make(chan struct{})
	conn = ask(t, s)
	defer conn.Close()
	<-reading
	stop()
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("the connection goes on when its context has ended")
	}
	<-gone
}

// silent is a connection whose peer neither sends nor ends.
type silent struct {
	net.Conn
	halves atomic.Int32
}

func (s *silent) CloseWrite() error { s.halves.Add(1); return nil }

// taken is an answer whose connection is this.
type taken struct {
	http.ResponseWriter
	conn net.Conn
}

func (t taken) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return t.conn, bufio.NewReadWriter(bufio.NewReader(t.conn), bufio.NewWriter(t.conn)), nil
}

func TestPeerThatNeverEndsIsLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		s := &silent{Conn: near}
		held := Hold(t.Context(), taken{httptest.NewRecorder(), s}, nil)
		if _, _, err := held.Hijack(); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		held.Finish()
		if took := time.Since(began); took != silence || s.halves.Load() != 1 {
			t.Errorf("left after %s, half closed %d times; want %s, once", took, s.halves.Load(), silence)
		}
		if _, err := far.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("the peer sees %v, want the end", err)
		}
	})
}
