package https

import (
	"context"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// connections are the open connections of a client, so that all can be closed at once.
type connections struct {
	dial  func(ctx context.Context, network, address string) (net.Conn, error)
	began time.Time // times are counted from it

	mu struct {
		sync.Mutex
		open map[*tracked]struct{}
	}
}

func (c *connections) dialTracked(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := c.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	t := &tracked{Conn: conn, of: c, address: address}
	t.heard.Store(int64(time.Since(c.began)))
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.open == nil {
		c.mu.open = map[*tracked]struct{}{}
	}
	c.mu.open[t] = struct{}{}
	return t, nil
}

// take takes what is open off the list.
func (c *connections) take() []*tracked {
	c.mu.Lock()
	defer c.mu.Unlock()
	open := slices.Collect(maps.Keys(c.mu.open))
	clear(c.mu.open)
	return open
}

// takeTo does the same with what is open to an address.
func (c *connections) takeTo(address string) (open []*tracked) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for t := range c.mu.open {
		if t.address == address {
			open = append(open, t)
			delete(c.mu.open, t)
		}
	}
	return open
}

func closeAll(open []*tracked) {
	for _, t := range open {
		_ = t.Close() // the other end sees it in any case
	}
}

// heard is when something has come in from an address; zero if nothing is open to it.
func (c *connections) heard(address string) (last time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for t := range c.mu.open {
		if at := c.began.Add(time.Duration(t.heard.Load())); t.address == address && at.After(last) {
			last = at
		}
	}
	return last
}

// tracked is a connection that leaves the list when it is closed.
type tracked struct {
	net.Conn
	of      *connections
	address string
	heard   atomic.Int64 // when something has come in, after the list's beginning
}

// Read reads what has come in.
func (t *tracked) Read(p []byte) (int, error) {
	n, err := t.Conn.Read(p)
	if n > 0 {
		t.heard.Store(int64(time.Since(t.of.began)))
	}
	return n, err
}

// Close closes the connection.
func (t *tracked) Close() error {
	t.of.mu.Lock()
	delete(t.of.mu.open, t)
	t.of.mu.Unlock()
	return t.Conn.Close()
}
