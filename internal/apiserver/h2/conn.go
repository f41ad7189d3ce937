package h2

import (
	"bytes"
	"crypto/tls"
	"net"
	"runtime"
	"sync"
	"time"
)

const (
	// gatherMost is how much may gather before who writes must wait. It is small
	// enough to stay in the processor's cache on its way.
	gatherMost = 128 << 10
	// lastWords is how long a connection that is closed may still take to send
	// what was written before.
	lastWords = 5 * time.Second
)

// small and large are the buffers that nobody needs now: most connections have nothing to
// send. An event that a thousand connections send at the same time needs a thousand small ones.
var small, large = sync.Pool{New: func() any { return new(bytes.Buffer) }}, sync.Pool{New: func() any { return bytes.NewBuffer(make([]byte, 0, largeFrom)) }}

// Buffers are small up to a number of bytes, and large from another one on: that is room for
// whatever may gather, and the last turn. To grow step by step is to copy, and to leave
// garbage, each time.
const (
	smallMost = 16 << 10
	largeFrom = gatherMost + turnMost
)

func newBuffer() *bytes.Buffer { return small.Get().(*bytes.Buffer) }

// withRoom returns b, or what it has in a large buffer, if b would not be small any more
// with n more bytes. What will be sent is not known before: a burst may be one event or fifty.
func withRoom(b *bytes.Buffer, n int) *bytes.Buffer {
	if b.Len()+n <= b.Cap() || b.Cap() >= largeFrom || 2*b.Cap()+n <= smallMost {
		return b
	}
	all := large.Get().(*bytes.Buffer)
	all.Write(b.Bytes())
	putBuffer(b)
	return all
}

// putBuffer gives a buffer back. One that has grown to neither is not kept.
func putBuffer(b *bytes.Buffer) {
	b.Reset()
	switch {
	case b.Cap() <= smallMost:
		small.Put(b)
	case b.Cap() >= largeFrom:
		large.Put(b)
	}
}

// Conn is a TLS connection that sends what is written to it in bursts. One
// goroutine at a time may write. An error of sending is returned by later writes.
type Conn struct {
	*tls.Conn
	socket *socket
	wake   chan struct{} // holds one token: there may be something to send, or no more
	sent   chan struct{} // holds one token: there may be room again
	done   chan struct{} // closed when nothing is sent any more
	in     inbound
	lanes  lanes
	// timeout is how long a client may take to receive a burst; zero: for ever.
	timeout time.Duration

	mu struct {
		sync.Mutex
		buf    *bytes.Buffer // nil: nothing is to be sent
		out    outbound      // what buf and those before it have had
		closed bool
		err    error // why nothing can be sent any more
	}
}

var _ net.Conn = (*Conn)(nil)

// newConn takes over a connection of a [Listener] whose handshake is done. run
// must be running, and the result be closed. A client that takes longer than
// timeout, unless that is zero, to receive what is sent at a time is cut off: the
// streams' own deadlines end what waits for a stream, but not for the connection.
func newConn(c *tls.Conn, s *socket, timeout time.Duration, pace *Pace) *Conn {
	b := &Conn{Conn: c, socket: s, timeout: timeout, wake: make(chan struct{}, 1), sent: make(chan struct{}, 1), done: make(chan struct{})}
	b.lanes.init(pace, func() { token(b.wake) })
	b.lanes.much = func() { s.much.Store(true) }
	b.in.credit = newCredit()
	b.in.credit.lanes = &b.lanes
	b.in.late = time.AfterFunc(heldFor, b.tellLate)
	b.in.late.Stop()
	s.gather(func() { token(b.wake) })
	return b
}

func token(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default: // there is one already
	}
}

// Write takes bytes to be sent as soon as possible; it waits while very much is.
func (c *Conn) Write(p []byte) (int, error) {
	for {
		ok, err := c.add(p)
		if err != nil {
			return 0, err
		}
		if ok {
			return len(p), nil
		}
		select {
		case <-c.sent:
		case <-c.done:
		}
	}
}

// add adds bytes to what is to be sent, if there is room.
func (c *Conn) add(p []byte) (ok bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.mu.err != nil:
		return false, c.mu.err
	case c.mu.closed:
		return false, net.ErrClosed
	case c.mu.buf == nil:
		c.mu.buf = newBuffer()
		token(c.wake)
	case c.mu.buf.Len() >= gatherMost:
		return false, nil
	}
	c.mu.buf = withRoom(c.mu.buf, len(p))
	c.mu.buf.Write(p)
	c.mu.out.follow(p, c.lanes.wrote)
	return true, nil
}

// run sends what is written until the connection is closed or fails.
func (c *Conn) run() {
	defer close(c.done)
	for range c.wake {
		// Who writes has often not finished: let it, if it is its turn.
		runtime.Gosched()
		for {
			more, err := c.send()
			if err != nil {
				c.fail(err)
				_ = c.socket.Conn.Close() // so that who reads learns of it
				return
			}
			if !more {
				break
			}
		}
		if c.closed() {
			return
		}
	}
}

// send sends what has gathered, if anything has.
func (c *Conn) send() (some bool, err error) {
	if buf := c.take(); buf != nil {
		token(c.sent)
		some = true
		c.socket.hold()
		_, err = c.Conn.Write(buf.Bytes())
		putBuffer(buf) // its records have gathered in another one
		if err != nil {
			return true, err
		}
	}
	return some, c.flush()
}

// flush sends the records that have gathered.
func (c *Conn) flush() error {
	buf := c.socket.take()
	if buf == nil {
		return nil
	}
	defer putBuffer(buf)
	if err := c.limitSending(); err != nil {
		return err
	}
	_, err := c.socket.Conn.Write(buf.Bytes())
	return err
}

// limitSending sets the time that the burst which is about to be sent may take. A
// connection that is closed has its deadline already.
func (c *Conn) limitSending() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timeout == 0 || c.mu.closed {
		return nil
	}
	return c.socket.SetWriteDeadline(time.Now().Add(c.timeout))
}

// take takes what is to be sent, nil if nothing is: what the server has written,
// and what the lanes have, if they may follow it (H1).
func (c *Conn) take() *bytes.Buffer {
	buf, between := c.written()
	if !between {
		return buf
	}
	if buf == nil {
		buf = newBuffer()
	}
	if buf = c.lanes.fill(buf); buf.Len() == 0 {
		putBuffer(buf)
		return nil
	}
	return buf
}

// written takes what the server has written; between says that it ends with a frame.
func (c *Conn) written() (buf *bytes.Buffer, between bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	buf, c.mu.buf = c.mu.buf, nil
	return buf, c.mu.out.between() && !c.mu.closed
}

func (c *Conn) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.err = err
}

func (c *Conn) closed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.closed && c.mu.buf == nil
}

// Close closes the connection when what was written is sent, or cannot be for a
// few seconds. It may be called more than once.
func (c *Conn) Close() error {
	err := c.closing()
	c.in.late.Stop()
	c.lanes.close()
	token(c.wake)
	if err == nil {
		<-c.done
	}
	c.socket.gather(nil)
	return c.Conn.Close()
}

// closing lets nothing more be written, and limits the time for what was.
func (c *Conn) closing() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.closed = true
	return c.Conn.SetWriteDeadline(time.Now().Add(lastWords))
}
