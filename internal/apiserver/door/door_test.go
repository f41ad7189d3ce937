package door

import (
	"context"
	"log/slog"
	"net"
	"testing"
)

// line is a connection from an address that notes whether it is closed.
type line struct {
	net.Conn
	from   net.Addr
	closed bool
}

func (l *line) RemoteAddr() net.Addr { return l.from }
func (l *line) Close() error         { l.closed = true; return nil }

// room is a door and the connections that have come to it.
type room struct {
	t    *testing.T
	d    *Keeper
	port int
}

func newRoom(t *testing.T, most int) *room {
	return &room{t, New(most, slog.New(slog.DiscardHandler)), 1000}
}

// come opens connections from an address.
func (r *room) come(ip string, n int) (in []net.Conn) {
	for range n {
		r.port++
		in = append(in, r.d.enter(&line{from: &net.TCPAddr{IP: net.ParseIP(ip), Port: r.port}}))
	}
	return in
}

func (r *room) known(system bool, list ...net.Conn) []net.Conn {
	for _, c := range list {
		Known(r.d.Context(context.Background(), c), func() bool { return system })
	}
	return list
}

// open is how many of the connections are.
func open(list []net.Conn) (n int) {
	for _, c := range list {
		if !c.(*conn).Conn.(*line).closed {
			n++
		}
	}
	return n
}

func (r *room) want(what string, list []net.Conn, want int) {
	r.t.Helper()
	if got := open(list); got != want {
		r.t.Errorf("%s: %d are open, want %d", what, got, want)
	}
}

func TestAnAddressHoldsAsManyAsItLeavesFree(t *testing.T) {
	r := newRoom(t, 12)
	first := r.come("192.0.2.1", 100)
	r.want("alone", first, 6)
	r.want("alone, the newest", first[94:], 6)
	second := r.come("192.0.2.2", 100)
	r.want("the second", second, 3)
	r.want("the first", first, 6)
	r.want("a third", r.come("192.0.2.3", 1), 1)
	r.want("the first, when there is less", append(first, r.come("192.0.2.1", 1)...), 6)
}

func TestAnIPv6NetworkIsOneAddress(t *testing.T) {
	r := newRoom(t, 12)
	r.want("one network", append(append(r.come("2001:db8::1", 5), r.come("2001:db8::2", 5)...), r.come("2001:db8::3", 5)...), 6)
	r.want("another", r.come("2001:db8:0:1::1", 1), 1)
}

func TestWhoIsKnownStaysWhileStrangersCome(t *testing.T) {
	r := newRoom(t, 20)
	known := r.known(false, r.come("192.0.2.1", 5)...)
	strangers := r.come("192.0.2.1", 1000)
	r.want("known", known, 5)
	r.want("strangers", strangers, 5)
	late := r.come("192.0.2.1", 1)
	r.come("192.0.2.1", 4)
	r.known(false, late...)
	r.come("192.0.2.1", 100)
	r.want("one that is known in time", late, 1)
}

func TestOneOfManyKnownAtAnAddressGoesForANewcomer(t *testing.T) {
	r := newRoom(t, 20)
	known := r.known(false, r.come("192.0.2.1", 10)...)
	late := r.come("192.0.2.1", 1)
	r.want("known", known, 9)
	r.want("the newcomer", late, 1)
}

func TestTheSystemDoesNotCountAndStays(t *testing.T) {
	r := newRoom(t, 20)
	system := r.known(true, r.come("192.0.2.1", 5)...)
	for range 50 {
		system = append(system, r.known(true, r.come("192.0.2.1", 1)...)...)
		r.known(false, r.come("192.0.2.1", 100)...)
	}
	r.want("the system's", system, 55)
	r.want("a newcomer elsewhere", r.come("192.0.2.2", 1), 1)
	for _, c := range system {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestWhenAllPlacesAreTakenANewcomerGetsOne(t *testing.T) {
	for name, known := range map[string]bool{"by strangers": false, "by who is known": true} {
		r := newRoom(t, 4)
		for _, ip := range []string{"192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"} {
			c := r.come(ip, 1)
			if known {
				r.known(false, c...)
			}
		}
		r.want(name, r.come("192.0.2.9", 1), 1)
		if r.d.mu.counted != 4 {
			t.Errorf("%s: %d are counted, want 4", name, r.d.mu.counted)
		}
	}
}

func TestPlacesAreGivenBack(t *testing.T) {
	r := newRoom(t, 20)
	all := append(r.come("192.0.2.1", 30), r.known(false, r.come("192.0.2.2", 3)...)...)
	all = append(all, r.known(true, r.come("192.0.2.2", 3)...)...)
	for range 2 { // a second time is nothing
		for _, c := range all {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	if m := &r.d.mu; m.counted != 0 || len(m.conns) != 0 || len(m.holders) != 0 || m.strangers.Len() != 0 {
		t.Errorf("after all have gone: %d counted, %d connections, %d addresses, %d strangers", m.counted, len(m.conns), len(m.holders), m.strangers.Len())
	}
}
