package edge

import (
	"errors"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/kemudi/kemudi/internal/edge/route"
	"github.com/kemudi/kemudi/test/wait"
)

// repeats serves UDP on a free port: it answers with a name and what it was sent.
func (b *bed) repeats(name string) (address string) {
	b.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.Close() })
	go func() {
		data := make([]byte, mostDatagram)
		for {
			n, from, err := c.ReadFrom(data)
			if err != nil {
				return
			}
			_, _ = c.WriteTo(append([]byte(name+" "), data[:n]...), from)
		}
	}()
	return c.LocalAddr().String()
}

// ask sends a word until there is an answer.
func ask(t *testing.T, c net.Conn, word string) (answer string) {
	t.Helper()
	data := make([]byte, mostDatagram)
	wait.Until(t, func() error {
		if _, err := c.Write([]byte(word)); err != nil {
			return err
		}
		if err := c.SetReadDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
			return err
		}
		n, err := c.Read(data)
		answer = string(data[:n])
		return err
	})
	return answer
}

func TestDatagramsGoToOneEndpointAndBack(t *testing.T) {
	b := newBed(t)
	one, two := b.repeats("one"), b.repeats("two")
	listener := route.Listener{Mode: route.Datagrams, Sites: []*route.Site{{
		Key: "t/dns UDPRoute", Rules: []route.Rule{{Type: route.Prefix, Do: 1}},
		Actions: []route.Action{{Backends: []route.Backend{{Upstream: "both", Weight: 1}, {Upstream: "never"}}}},
	}}}
	upstreams := func(endpoints ...string) route.Change {
		return route.Change{Upstreams: map[string]*route.Upstream{"both": {Endpoints: endpoints}, "never": {Endpoints: []string{b.repeats("never")}}}}
	}
	b.through(upstreams(one, two), listener)
	seen := map[string]bool{}
	var clients []net.Conn
	for i := range 8 {
		// A connection takes answers only from where it sends to.
		c, err := net.Dial("udp", b.at(doorPort))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		clients = append(clients, c)
		first := ask(t, c, fmt.Sprint("word", i))
		seen[first[:3]] = true
		for range 3 {
			if again := ask(t, c, fmt.Sprint("word", i)); again != first {
				t.Errorf("one client: got %q, and before %q", again, first)
			}
		}
	}
	if !seen["one"] || !seen["two"] || len(seen) != 2 {
		t.Errorf("eight clients: got answers of %v, want one and two", seen)
	}
	large := make([]byte, 9000)
	if got := ask(t, clients[0], string(large)); len(got) != len(large)+4 {
		t.Errorf("a datagram of %d bytes came back with %d", len(large), len(got))
	}
	// Who talks with an endpoint that is no more goes on with another one.
	b.order(Order{Change: route.Change{Upstreams: map[string]*route.Upstream{"both": {Endpoints: []string{two}}}}})
	for i, c := range clients {
		wait.Until(t, func() error {
			if got := ask(t, c, "next"); got != "two next" {
				return fmt.Errorf("client %d: got %q, want two", i, got)
			}
			return nil
		})
	}
	b.order(Order{Change: route.Change{Doors: map[string]*route.Door{"g:80": nil}}})
	wait.Until(t, func() error {
		if _, err := clients[0].Write([]byte("word")); err != nil {
			return nil // nobody listens there
		}
		_ = clients[0].SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		_, err := clients[0].Read(large)
		if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf("the port of a door that is no more: got %v, want a refusal", err)
		}
		return nil
	})
}
