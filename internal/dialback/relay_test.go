package dialback

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// byAnother connects to an address on a node as another server does.
func (b *bed) byAnother(node, address string) (net.Conn, error) {
	roots := x509.NewCertPool()
	roots.AddCert(b.server.Certificate())
	p := Peers{CA: roots, Certificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &tls.Certificate{}, nil }}
	conn, err := p.Dial(b.Context(), b.server.URL, node, address)
	if err == nil {
		b.Cleanup(func() { conn.Close() })
	}
	return conn, err
}

func TestAnotherServerConnectsByTheTunnelOfThisOne(t *testing.T) {
	b := newBed(t, map[string]site{pod: lastly, agentAt: echo})
	conn, err := b.byAnother("n1", pod)
	b.must(err)
	for range 3 {
		_, err := conn.Write(make([]byte, 400<<10))
		b.must(err)
	}
	b.must(conn.(interface{ CloseWrite() error }).CloseWrite())
	got, err := io.ReadAll(conn)
	if want := fmt.Sprint(int64(1200<<10), error(nil)); err != nil || string(got) != want {
		t.Errorf("after the sending half was closed: got %q, %v, want %q", got, err, want)
	}
	conn, err = b.byAnother("n1", NodeAgent)
	b.must(err)
	fmt.Fprint(conn, "hello")
	word := make([]byte, 5)
	if _, err := io.ReadFull(conn, word); err != nil || string(word) != "hello" {
		t.Errorf("the node's own agent: got %q, %v", word, err)
	}
	b.end() // the agent's process
	if n, err := conn.Read(word); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("when the tunnel breaks: got %d bytes, %v, want that more was to come", n, err)
	}
}

func TestTargetHearsThatTheOtherServerHasClosed(t *testing.T) {
	heard := make(chan error, 1)
	b := newBed(t, map[string]site{pod: func(conn net.Conn) {
		// Who talks all the time and never looks whether anybody listens.
		for {
			if _, err := conn.Write(make([]byte, 64<<10)); err != nil {
				heard <- err
				return
			}
		}
	}, other: func(conn net.Conn) { // who waits
		_, err := io.Copy(io.Discard, conn)
		heard <- err
	}})
	for _, address := range []string{pod, other} {
		conn, err := b.byAnother("n1", address)
		b.must(err)
		_, err = conn.Write([]byte("x"))
		b.must(err)
		b.must(conn.Close())
		<-heard
	}
}

func TestRelayRefusesWhatATunnelRefuses(t *testing.T) {
	b := newBed(t, map[string]site{pod: echo})
	host := b.server.Listener.Addr().String()
	for address, want := range map[string]string{
		"10.244.2.7:80":  "node n1: 10.244.2.7:80 is no address of this node's pods",
		"127.0.0.1:22":   "node n1: 127.0.0.1:22 is no address of a pod",
		"10.244.1.99:80": "node n1: dial 10.244.1.99:80: connection refused",
	} {
		_, err := b.byAnother("n1", address)
		want = "connect to " + address + " by server " + host + ": 502 Bad Gateway: connect to " + address + " by the tunnel of the node: " + want
		if err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", address, err, want)
		}
	}
	if _, err := b.byAnother("n2", pod); !errors.Is(err, ErrNoTunnel) || !strings.Contains(err.Error(), "by server "+host) {
		t.Errorf("a node without a tunnel: got %v", err)
	}
	res, err := b.server.Client().Get(b.server.URL + RelayPath("n1") + "?to=" + pod)
	b.must(err)
	text, err := io.ReadAll(res.Body)
	res.Body.Close()
	if err != nil || res.StatusCode != http.StatusBadRequest || !strings.Contains(string(text), relayProtocol) {
		t.Errorf("without an upgrade: got %s %s, %v", res.Status, text, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := (Peers{CA: x509.NewCertPool()}).Dial(ctx, b.server.URL, "n1", pod); !errors.Is(err, context.Canceled) {
		t.Errorf("who has given up: got %v", err)
	}
}
