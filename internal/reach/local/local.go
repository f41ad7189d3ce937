// Package local is an address of a machine's own that leads to the API: whoever connects
// there is connected to a server that lives, whichever that is. Programs of the machine
// then need to know one address, which stays when servers come and go.
//
// It carries bytes: TLS is between client and server, who see each other's certificates.
// A connection stays with its server, and ends when that does; the next one finds another.
package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kemudi/kemudi/internal/reach"
	"github.com/kemudi/kemudi/internal/task"
)

// Options of an address. All are required.
type Options struct {
	Listener net.Listener // which Run closes
	// Prefer is the URL of the server that is known to answer best now; empty: none is known.
	Prefer func() string
	Logger *slog.Logger
}

// Address leads to the servers while Run runs. Its methods may be called concurrently.
type Address struct {
	o    Options
	ways *reach.Ways

	mu struct {
		sync.Mutex
		servers []string // "host:port"
	}
}

const (
	dialTimeout = 10 * time.Second
	most        = 512 // connections at a time; who is one too many waits
)

// A server that has gone without a word is noticed after some ten seconds, whether or not
// something is on the way to it.
var alive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3}

const unheard = 10 * time.Second

// New returns an address that leads to no server yet.
func New(o Options) *Address {
	a := &Address{o: o}
	dialer := &net.Dialer{KeepAliveConfig: alive, Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) {
			failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(unheard/time.Millisecond))
		})
		return errors.Join(err, failed)
	}}
	a.ways = reach.New(func(reach.Target) (list []reach.Way) {
		for _, server := range a.inOrder() {
			list = append(list, reach.Way{Name: server, Dial: func(ctx context.Context, _ reach.Target) (net.Conn, error) {
				return dialer.DialContext(ctx, "tcp", server)
			}})
		}
		return list
	})
	return a
}

// SetServers says where the servers are, by their URLs.
func (a *Address) SetServers(urls []string) {
	var servers []string
	for _, text := range urls {
		if server := hostOf(text); server != "" {
			servers = append(servers, server)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.servers = servers
}

// hostOf is where a server of a URL is; empty: it is none.
func hostOf(text string) string {
	at, err := url.Parse(text)
	if err != nil || at.Hostname() == "" {
		return ""
	}
	if at.Port() == "" {
		return net.JoinHostPort(at.Hostname(), "443")
	}
	return at.Host
}

// inOrder are the servers, the preferred one first.
func (a *Address) inOrder() []string {
	first := hostOf(a.o.Prefer())
	a.mu.Lock()
	defer a.mu.Unlock()
	list := make([]string, 0, len(a.mu.servers))
	for _, server := range a.mu.servers {
		if server == first {
			list = append(list, server)
		}
	}
	for _, server := range a.mu.servers {
		if server != first {
			list = append(list, server)
		}
	}
	return list
}

// Run serves the address until ctx ends. Connections end with it.
func (a *Address) Run(ctx context.Context) error {
	g := task.NewGroup(ctx)
	stop := context.AfterFunc(ctx, func() { _ = a.o.Listener.Close() })
	defer stop()
	free := make(chan struct{}, most) // holds a token for each connection
	g.Go("accept", func(ctx context.Context) error {
		for {
			conn, err := a.o.Listener.Accept()
			if ctx.Err() != nil {
				return nil
			}
			if err != nil { // too many open files, as like as not
				a.o.Logger.WarnContext(ctx, "take a connection to the API", "err", err)
				if task.Sleep(ctx, time.Second) != nil {
					return nil
				}
				continue
			}
			select {
			case free <- struct{}{}:
			case <-ctx.Done():
				_ = conn.Close()
				return nil
			}
			g.Go("connection to the API", func(ctx context.Context) error {
				defer func() { <-free }()
				if err := a.carry(ctx, conn); err != nil {
					a.o.Logger.WarnContext(ctx, "no server for a connection from this machine", "err", err)
				}
				return nil
			})
		}
	})
	return g.Wait()
}

// carry connects a client to a server until one of them has ended.
func (a *Address) carry(ctx context.Context, client net.Conn) error {
	defer client.Close()
	dialing, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if len(a.inOrder()) == 0 {
		return errors.New("this machine knows of none")
	}
	server, err := a.ways.Dial(dialing, reach.Target{})
	if err != nil {
		return fmt.Errorf("connect to the API: %w", err)
	}
	defer server.Close()
	end := func() {
		_ = client.Close()
		_ = server.Close()
	}
	defer context.AfterFunc(ctx, end)()
	var wg sync.WaitGroup
	wg.Go(func() { half(client, server, end) })
	half(server, client, end)
	wg.Wait()
	return nil
}

// half carries one direction to its end. What is broken off is so for both.
func half(to, from net.Conn, end func()) {
	_, err := io.Copy(to, from)
	if last, ok := to.(interface{ CloseWrite() error }); ok && err == nil && last.CloseWrite() == nil {
		return
	}
	end()
}
