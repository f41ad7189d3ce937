package h2

import (
	"bytes"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Listener accepts connections whose TLS records can gather, for [Configure].
type Listener struct{ net.Listener }

// Accept waits for the next connection.
func (l Listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &socket{Conn: c}, nil
}

// socket is the connection below TLS. Until gather is called it is as any other.
type socket struct {
	net.Conn
	// much is set when much was sent: then the client's window updates come in great numbers.
	much atomic.Bool
	nap  *time.Timer // nil: there was no reason for one yet

	mu struct {
		sync.Mutex
		wake func() // not nil: records gather; it is told of those that nobody is about to send
		held bool   // take will be called
		buf  *bytes.Buffer
	}
}

// gather lets records gather from now on: wake is called when take should be,
// and must not block. After gather(nil) records are sent at once again.
func (s *socket) gather(wake func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.wake = wake
}

// hold says that take will be called soon.
func (s *socket) hold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.held = true
}

const (
	// napAfter is how much is sent before window updates are let gather, napFor how long.
	// It is far less than a client with a lane takes.
	napAfter = 256 << 10
	napFor   = time.Millisecond
)

// Read reads what has come. While much is sent it lets some gather before: a client
// grants more for each 8 KiB that it has read, and to be woken costs more than to read.
func (s *socket) Read(p []byte) (int, error) {
	if s.much.Swap(false) {
		if s.nap == nil {
			s.nap = time.NewTimer(napFor)
		} else {
			s.nap.Reset(napFor)
		}
		<-s.nap.C
	}
	return s.Conn.Read(p)
}

// Write sends TLS records, or lets them gather.
func (s *socket) Write(p []byte) (int, error) {
	if s.keep(p) {
		return len(p), nil
	}
	return s.Conn.Write(p)
}

func (s *socket) keep(p []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.wake == nil {
		return false
	}
	if s.mu.buf == nil {
		s.mu.buf = newBuffer()
	}
	s.mu.buf = withRoom(s.mu.buf, len(p))
	s.mu.buf.Write(p)
	if !s.mu.held {
		s.mu.wake()
	}
	return true
}

// take takes what has gathered, nil if nothing has: to be sent. One goroutine at a
// time may call it.
func (s *socket) take() *bytes.Buffer {
	s.mu.Lock()
	defer s.mu.Unlock()
	buf := s.mu.buf
	s.mu.buf, s.mu.held = nil, false
	return buf
}
