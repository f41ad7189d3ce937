package bfd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/kemudi/kemudi/internal/task"
)

// What may be wanted of a session.
const (
	LeastInterval, MostInterval = 10 * time.Millisecond, 10 * time.Second
	DefaultMultiplier           = 3
)

// ErrDead says that a neighbour was heard, and is dead, or has lost the way here.
var ErrDead = errors.New("it is dead, or the way to it is (BFD)")

// Neighbour is whom to watch, and how.
type Neighbour struct {
	Local, Remote netip.Addr // of one network
	Interval      time.Duration
	Multiplier    uint8  // so many packets that are missed in a row are a failure
	Up            func() // called when both hear each other; nil: nobody wants to know
}

// Sockets opens what a Speaker hears and says by.
type Sockets interface {
	// Listen opens the socket at which all packets of a family arrive, udp4 or udp6, each with the hops that it has left.
	Listen(ctx context.Context, network string) (*net.UDPConn, error)
	// Dial opens the one that a session sends from.
	Dial(ctx context.Context, local, remote netip.Addr) (net.Conn, error)
}

// Speaker watches neighbours.
type Speaker struct {
	sockets Sockets
	log     *slog.Logger

	mu struct {
		sync.Mutex
		sessions map[uint32]*session // by their number here
	}
}

// NewSpeaker returns a Speaker that watches nobody.
func NewSpeaker(sockets Sockets, log *slog.Logger) *Speaker {
	s := &Speaker{sockets: sockets, log: log}
	s.mu.sessions = map[uint32]*session{}
	return s
}

// session is with one neighbour.
type session struct {
	Neighbour
	number uint32
	heard  chan packet // what has no room is lost, as on any wire
}

// Run receives packets of neighbours until ctx ends.
func (s *Speaker) Run(ctx context.Context) error {
	g := task.NewGroup(ctx)
	for _, network := range []string{"udp4", "udp6"} {
		g.Go("bfd "+network, func(ctx context.Context) error { return s.receive(ctx, network) })
	}
	return g.Wait()
}

// receive keeps the socket of a family. Who has its port otherwise keeps no routes from anybody: the sessions are just not up.
func (s *Speaker) receive(ctx context.Context, network string) error {
	wait := task.Backoff{Initial: time.Second, Max: time.Minute, Jitter: 0.2}
	for {
		c, err := s.sockets.Listen(ctx, network)
		if err == nil {
			err = s.read(ctx, c)
		}
		if ctx.Err() != nil {
			return nil
		}
		s.log.Warn("cannot hear by BFD whether routers live: it is tried again", "network", network, "port", port, "err", err)
		if task.Sleep(ctx, wait.Next()) != nil {
			return nil
		}
	}
}

func (s *Speaker) read(ctx context.Context, c *net.UDPConn) error {
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	for {
		p, from, err := receive(c)
		if err != nil {
			_ = c.Close()
			return err
		}
		if to := s.find(&p, from); to != nil {
			select {
			case to.heard <- p:
			default:
			}
		}
	}
}

// find is the session that a packet is of; nil: none.
func (s *Speaker) find(p *packet, from netip.Addr) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.yours != 0 {
		if n := s.mu.sessions[p.yours]; n != nil && n.Remote.WithZone("") == from.WithZone("") {
			return n
		}
		return nil
	}
	for _, n := range s.mu.sessions {
		if n.Remote.WithZone("") == from.WithZone("") {
			return n
		}
	}
	return nil
}

// begin makes a session.
func (s *Speaker) begin(n Neighbour) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := &session{Neighbour: n, heard: make(chan packet, 8)}
	for one.number == 0 || s.mu.sessions[one.number] != nil {
		one.number = rand.Uint32()
	}
	s.mu.sessions[one.number] = one
	return one
}

func (s *Speaker) forget(n *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.sessions, n.number)
}

// Watch watches a neighbour until ctx ends, of which it is told, and returns nil; or until it was heard and is dead: then it
// returns [ErrDead]. Run must run.
func (s *Speaker) Watch(ctx context.Context, n Neighbour) error {
	conn, err := s.sockets.Dial(ctx, n.Local, n.Remote)
	if err != nil {
		return fmt.Errorf("watch %s by BFD: %w", n.Remote, err)
	}
	defer conn.Close()
	one := s.begin(n)
	defer s.forget(one)
	w := &watching{session: one, machine: newMachine(one.number, n.Interval, n.Multiplier), conn: conn, due: time.NewTimer(0), silence: time.NewTimer(time.Hour)}
	defer w.due.Stop()
	defer w.silence.Stop()
	for !w.dead {
		if !w.step(ctx) {
			return nil
		}
	}
	return ErrDead
}

// watching is a session at work.
type watching struct {
	*session
	*machine
	conn         net.Conn
	due, silence *time.Timer // of the next packet, and of when the neighbour is taken for dead
	still        bool        // no packet is due: the neighbour wants none
	met          bool        // it was up, and has not taken leave since
	dead         bool
}

// farewells are how many packets say goodbye: some may be lost.
const farewells = 3

// step waits for something to happen and does what follows. false: it was the end of ctx.
func (w *watching) step(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		w.leave()
		for range farewells {
			w.tell(w.say(false))
		}
		return false
	case p := <-w.heard:
		if !w.hearing(p) && !w.still {
			return true // the next packet is due when it was
		}
	case <-w.silence.C:
		if !w.missed() {
			return true
		}
	case <-w.due.C:
	}
	w.dead = w.met && w.machine.state == down
	if !w.met && w.machine.state == up {
		w.met = true
		if w.Up != nil {
			w.Up()
		}
	}
	wait := w.pause(rand.Float64())
	if w.still = wait == 0; w.still {
		w.due.Stop()
		return true
	}
	w.tell(w.say(false))
	w.due.Reset(wait)
	return true
}

// hearing takes in a packet, answers it if that is wanted, and says whether another one is to be sent at once: as the state is another
// one, or the pace.
func (w *watching) hearing(p packet) bool {
	pace := max(w.wanted(), w.other.take)
	changed := w.hear(p, time.Now())
	if p.state == adminDown {
		w.met = false
	}
	if p.poll {
		w.tell(w.say(true))
	}
	w.silence.Reset(time.Until(w.silentAfter))
	return changed || max(w.wanted(), w.other.take) != pace
}

// tell sends a packet. One that cannot be sent is as good as lost: who misses it says so, or falls silent.
func (w *watching) tell(p packet) { _, _ = w.conn.Write(p.encode()) }
