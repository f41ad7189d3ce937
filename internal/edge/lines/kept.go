package lines

import (
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// kept are the connections that nobody uses, by address, those that were used last at the end.
type kept struct {
	mu struct {
		sync.Mutex
		of     map[string][]*conn
		timer  *time.Timer // of the next sweep; nil: there is nothing to sweep
		closed bool
	}
}

// take returns the connection that was used last; nil: there is none.
func (k *kept) take(address string) *conn {
	k.mu.Lock()
	defer k.mu.Unlock()
	list := k.mu.of[address]
	if len(list) == 0 {
		return nil
	}
	last := len(list) - 1
	c := list[last]
	list[last] = nil
	k.mu.of[address] = list[:last]
	return c
}

// keep keeps a connection, unless there are enough.
func (s *Sender) keep(c *conn) {
	c.old, c.since = true, time.Now()
	k := &s.kept
	k.mu.Lock()
	full := k.mu.closed || len(k.mu.of[c.address]) >= s.Most
	if !full {
		if k.mu.of == nil {
			k.mu.of = map[string][]*conn{}
		}
		k.mu.of[c.address] = append(k.mu.of[c.address], c)
		if k.mu.timer == nil {
			k.mu.timer = time.AfterFunc(s.Idle, s.sweep)
		}
	}
	k.mu.Unlock()
	if full {
		c.cut()
	}
}

// sweep closes what nobody has used for long. It comes again as long as anything is kept.
func (s *Sender) sweep() {
	k := &s.kept
	now := time.Now()
	var old []*conn
	k.mu.Lock()
	for address, list := range k.mu.of {
		n := 0
		for n < len(list) && now.Sub(list[n].since) >= s.Idle {
			n++
		}
		old = append(old, list[:n]...)
		if n == len(list) {
			delete(k.mu.of, address)
		} else if n > 0 {
			k.mu.of[address] = slices.Clone(list[n:])
		}
	}
	switch {
	case k.mu.closed:
	case len(k.mu.of) > 0:
		k.mu.timer.Reset(s.Idle / 2)
	default:
		k.mu.timer = nil
	}
	k.mu.Unlock()
	for _, c := range old {
		c.cut()
	}
}

// Forget closes what is kept for an address: nobody is there any more.
func (s *Sender) Forget(address string) {
	s.kept.mu.Lock()
	list := s.kept.mu.of[address]
	delete(s.kept.mu.of, address)
	s.kept.mu.Unlock()
	for _, c := range list {
		c.cut()
	}
}

// Close closes all that is kept, and has nothing be kept any more.
func (s *Sender) Close() {
	k := &s.kept
	k.mu.Lock()
	all := k.mu.of
	k.mu.of, k.mu.closed = nil, true
	if k.mu.timer != nil {
		k.mu.timer.Stop()
	}
	k.mu.Unlock()
	for _, list := range all {
		for _, c := range list {
			c.cut()
		}
	}
}

// probe looks whether something has come over a connection, without waiting.
type probe struct {
	raw  syscall.RawConn
	look func(fd uintptr)
	of   [1]unix.PollFd
	n    int // how many of them have something to say
	err  error
}

// newProbe returns nil for what is no socket.
func newProbe(c net.Conn) *probe {
	s, ok := c.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return nil
	}
	p := &probe{raw: raw}
	p.look = func(fd uintptr) {
		p.of[0] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN | unix.POLLRDHUP}
		p.n, p.err = unix.Poll(p.of[:], 0)
	}
	return p
}

func (p *probe) quiet() bool { return p.raw.Control(p.look) == nil && p.err == nil && p.n == 0 }
