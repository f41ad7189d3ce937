package nettest

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"sync"
	"time"
)

// patience is how long a client waits for an answer that ought to come. What goes a second and three
// seconds after the first packet must have a chance: until then an address of IPv6 may not answer.
const patience = 5 * time.Second

// Serve answers on an address ("tcp" or "udp", "10.0.0.1:80") of the host until
// the test ends: every TCP connection and every datagram gets "name client-address".
// TCP connections then echo what they are sent until they are closed. Port 0
// takes a free port; the address served is returned.
func (h *Host) Serve(name, network, addr string) string {
	h.t.Helper()
	var (
		close  func() error
		serve  func()
		actual string
	)
	h.Must(func() error {
		if network == "udp" || network == "udp4" || network == "udp6" {
			c, err := net.ListenPacket(network, addr)
			if err != nil {
				return err
			}
			close, serve, actual = c.Close, func() { serveUDP(name, c) }, c.LocalAddr().String()
			return nil
		}
		l, err := net.Listen(network, addr)
		if err != nil {
			return err
		}
		close, serve, actual = l.Close, func() { serveTCP(name, l) }, l.Addr().String()
		return nil
	})
	var wg sync.WaitGroup
	wg.Go(serve)
	h.t.Cleanup(func() {
		_ = close()
		wg.Wait()
	})
	return actual
}

func serveUDP(name string, c net.PacketConn) {
	buf := make([]byte, 2048)
	for {
		_, from, err := c.ReadFrom(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			_, _ = c.WriteTo(fmt.Appendf(nil, "%s %s", name, hostOf(from)), from)
		}
	}
}

func serveTCP(name string, l net.Listener) {
	var (
		wg sync.WaitGroup
		mu struct {
			sync.Mutex
			open map[net.Conn]bool
		}
	)
	mu.open = map[net.Conn]bool{}
	for {
		c, err := l.Accept()
		if err != nil {
			break
		}
		mu.Lock()
		mu.open[c] = true
		mu.Unlock()
		wg.Go(func() {
			_, _ = fmt.Fprintf(c, "%s %s\n", name, hostOf(c.RemoteAddr()))
			_, _ = io.Copy(c, c)
			_ = c.Close()
			mu.Lock()
			delete(mu.open, c)
			mu.Unlock()
		})
	}
	mu.Lock()
	for c := range mu.open {
		_ = c.Close()
	}
	mu.Unlock()
	wg.Wait()
}

func hostOf(a net.Addr) string {
	host, _, _ := net.SplitHostPort(a.String())
	return host
}

// Dial connects from the host. The caller closes the connection.
func (h *Host) Dial(network, addr string) (net.Conn, error) {
	return h.DialFrom(network, "", addr)
}

// DialFrom connects from the host and from a given address of it ("ip:port";
// empty: any).
func (h *Host) DialFrom(network, from, addr string) (net.Conn, error) {
	var c net.Conn
	err := h.Do(func() error {
		d := net.Dialer{Timeout: patience}
		if from != "" {
			local, err := resolve(network, from)
			if err != nil {
				return err
			}
			d.LocalAddr = local
		}
		var err error
		c, err = d.DialContext(context.Background(), network, addr)
		return err
	})
	return c, err
}

func resolve(network, addr string) (net.Addr, error) {
	if network == "udp" {
		return net.ResolveUDPAddr(network, addr)
	}
	return net.ResolveTCPAddr(network, addr)
}

// Ask connects to a server made by [Host.Serve] and returns who answered and
// which client address it saw.
func (h *Host) Ask(network, addr string) (name, client string, err error) {
	c, err := h.Dial(network, addr)
	if err != nil {
		return "", "", err
	}
	defer c.Close()
	return AskOn(c)
}

// AskOn asks again over a connected UDP socket, or reads the greeting of a new
// TCP connection.
func AskOn(c net.Conn) (name, client string, err error) {
	if _, ok := c.(*net.UDPConn); ok {
		if _, err := c.Write([]byte("hello")); err != nil {
			return "", "", err
		}
	}
	_ = c.SetReadDeadline(time.Now().Add(patience))
	buf := make([]byte, 256)
	n, err := c.Read(buf)
	if err != nil {
		return "", "", err
	}
	if _, err := fmt.Sscanf(string(buf[:n]), "%s %s", &name, &client); err != nil {
		return "", "", fmt.Errorf("read answer %q: %w", buf[:n], err)
	}
	return name, client, nil
}

// SendInit sends what begins an association of SCTP, for which the kernel may have no sockets, from the network namespace
// of the calling thread.
func SendInit(to string, port uint16) error {
	c, err := net.Dial("ip:132", to)
	if err != nil {
		return err
	}
	defer c.Close()
	p := []byte{0x30, 0x39, byte(port >> 8), byte(port), 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 20, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1}
	sum := crc32.Checksum(p, crc32.MakeTable(crc32.Castagnoli))
	p[8], p[9], p[10], p[11] = byte(sum), byte(sum>>8), byte(sum>>16), byte(sum>>24)
	_, err = c.Write(p)
	return err
}
