package ssh

import (
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// connection is one through a login. The library's knows no deadlines: one that passes
// while it is set ends this one.
type connection struct {
	net.Conn
	leave func()

	silent atomic.Bool // nothing may be sent any more

	mu struct {
		sync.Mutex
		reading, writing *time.Timer // of the deadlines; nil: there is none
	}
}

var _ net.Conn = (*connection)(nil)

// Close closes the connection. It may be called more than once.
func (c *connection) Close() error {
	_ = c.SetDeadline(time.Time{})
	c.leave()
	return c.Conn.Close()
}

// CloseWrite tells the target that nothing follows.
func (c *connection) CloseWrite() error {
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	return half.CloseWrite()
}

// Write sends to the target, and waits while that does not read.
func (c *connection) Write(p []byte) (int, error) {
	if c.silent.Load() {
		return 0, os.ErrDeadlineExceeded
	}
	return c.Conn.Write(p)
}

// SetDeadline sets both deadlines.
func (c *connection) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetReadDeadline bounds the time for which the connection may be read.
func (c *connection) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.reading = c.endAt(c.mu.reading, t)
	return nil
}

// SetWriteDeadline bounds the time of writes, pending ones too. One that has passed when
// it is set forbids further ones, and ends nothing.
func (c *connection) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	late := !t.IsZero() && !time.Now().Before(t)
	if c.silent.Store(late); late {
		t = time.Time{}
	}
	c.mu.writing = c.endAt(c.mu.writing, t)
	return nil
}

// endAt ends the connection at a time, in place of when a timer would; zero: not at all.
func (c *connection) endAt(before *time.Timer, t time.Time) *time.Timer {
	if before != nil {
		before.Stop()
	}
	if t.IsZero() {
		return nil
	}
	return time.AfterFunc(time.Until(t), func() {
		c.leave()
		_ = c.Conn.Close() // who waits is told
	})
}
