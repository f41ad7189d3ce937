package edge

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/kemudi/kemudi/internal/edge/route"
	"github.com/kemudi/kemudi/internal/task"
)

// pipes is a listener whose connections are pipes, on which time can be virtual.
type pipes struct {
	conns chan net.Conn
	ended chan struct{}
}

func newPipes() pipes { return pipes{make(chan net.Conn), make(chan struct{})} }

func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.ended:
		return nil, net.ErrClosed
	}
}

func (p pipes) Close() error {
	select {
	case <-p.ended:
	default:
		close(p.ended)
	}
	return nil
}

func (p pipes) Addr() net.Addr { return &net.UnixAddr{} }

func (p pipes) dial(t *testing.T) net.Conn {
	here, there := net.Pipe()
	p.conns <- there
	t.Cleanup(func() { here.Close() })
	return here
}

// TestNoClientHoldsAnythingByBeingSlow (E5): whatever a client waits with, its connection ends.
func TestNoClientHoldsAnythingByBeingSlow(t *testing.T) {
	for _, tc := range []struct {
		name, send string
		answer     string // before the end; empty: none
		within     time.Duration
	}{
		{"says nothing", "", "", headerTimeout},
		{"stops in the headers", "GET / HTTP/1.1\r\nHost: a.com\r\nX-A: ", "", headerTimeout},
		{"asks nothing more", "GET / HTTP/1.1\r\nHost: b.com\r\n\r\n", "404 Not Found", idleTimeout},
		{"stops in a body for nobody", "POST / HTTP/1.1\r\nHost: b.com\r\nContent-Length: 10\r\n\r\n12345", "404 Not Found", lingerTimeout},
		{"stops in a body that is refused", "POST / HTTP/1.1\r\nHost: a.com\r\nContent-Length: 10\r\n\r\n12345", "401 Unauthorized", lingerTimeout},
		{"stops in a body of parts", "POST / HTTP/1.1\r\nHost: a.com\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n", "401 Unauthorized", lingerTimeout},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				orders, port := newPipes(), newPipes()
				e := New(Options{Control: orders, Listen: func(context.Context, string, string) (net.Listener, error) { return port, nil }})
				g := task.NewGroup(t.Context())
				g.Go("edge", e.Run)
				e.apply(&route.Change{Sites: map[string]*route.Site{"s": {
					Key: "s", Rules: []route.Rule{{Host: "a.com", Type: route.Prefix, Upstream: "u"}}, Options: &route.Options{Login: &route.Login{}},
				}}})
				e.ports.want(Ports{HTTP: httpPort})
				c := port.dial(t)
				began := time.Now()
				if _, err := io.WriteString(c, tc.send); err != nil {
					t.Fatal(err)
				}
				in := bufio.NewReader(c)
				if tc.answer != "" {
					res, err := http.ReadResponse(in, nil)
					if err != nil || res.Status != tc.answer {
						t.Fatalf("got %v, %v, want %s", res, err, tc.answer)
					}
					if _, err := io.Copy(io.Discard, res.Body); err != nil {
						t.Fatal(err)
					}
				}
				if _, err := in.ReadByte(); !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrClosedPipe) {
					t.Errorf("got %v, want the end", err)
				}
				if took := time.Since(began); took > tc.within+2*time.Second {
					t.Errorf("it was held for %s, want %s at the most", took, tc.within)
				}
				g.Cancel(context.Canceled)
				if err := g.Wait(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestClientOfHTTP2ThatReceivesNothingIsCutOff (E5): it asks, and leaves what it is sent where it is.
func TestClientOfHTTP2ThatReceivesNothingIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		orders, port := newPipes(), newPipes()
		e := New(Options{Control: orders, Listen: func(context.Context, string, string) (net.Listener, error) { return port, nil }})
		g := task.NewGroup(t.Context())
		g.Go("edge", e.Run)
		e.ports.want(Ports{HTTPS: httpsPort})
		raw := port.dial(t)
		c := tls.Client(raw, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
		if err := c.Handshake(); err != nil {
			t.Fatal(err)
		}
		var said bytes.Buffer
		said.WriteString(http2.ClientPreface)
		f := http2.NewFramer(&said, nil)
		err := errors.Join(f.WriteSettings(), f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: headersOf(t, "a.com"), EndStream: true, EndHeaders: true}))
		if _, wrong := c.Write(said.Bytes()); err != nil || wrong != nil {
			t.Fatal(err, wrong)
		}
		time.Sleep(sendTimeout - time.Second)
		synctest.Wait()
		ping := func() error {
			said.Reset()
			err := f.WritePing(false, [8]byte{})
			_, wrong := c.Write(said.Bytes())
			return errors.Join(err, wrong)
		}
		if err := ping(); err != nil {
			t.Errorf("cut off before its time: %v", err)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if err := ping(); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("after %s got %v, want a connection that is closed", sendTimeout, err)
		}
		g.Cancel(context.Canceled)
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
}

// headersOf are those of a request for a host.
func headersOf(t *testing.T, host string) []byte {
	var b bytes.Buffer
	to := hpack.NewEncoder(&b)
	for _, h := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", host}, {":path", "/"}} {
		if err := to.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}
