package edge

import (
	"fmt"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/kemudi/kemudi/internal/edge/route"
)

func newUsage(l route.Limits) *usage {
	sites := map[string]*route.Site{"s": {Key: "s", Options: &route.Options{Limits: &l}}}
	return usageAfter(&state{}, &route.Change{Sites: sites})["s"]
}

func TestClientsAreCountedByTheirAddress(t *testing.T) {
	a, b := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	for _, tc := range []struct {
		name   string
		limits route.Limits
		at     []time.Duration
		want   string // one letter a request
	}{
		{"two a second, six of which at once", route.Limits{PerSecond: 2, Burst: 3}, []time.Duration{0, 0, 0, 0, 0, 0, 0, 0, 499, 500, 501, 1000}, "yyyyyyynny ny"},
		{"one a minute, one more at once", route.Limits{PerMinute: 1, Burst: 1}, []time.Duration{0, 0, 0, 59_000, 60_000}, "yynny"},
	} {
		u := newUsage(tc.limits)
		got := ""
		for _, at := range tc.at {
			if u.enter(a, at*time.Millisecond) {
				got += "y"
				u.leave(a)
			} else {
				got += "n"
			}
		}
		want := ""
		for _, c := range tc.want {
			if c != ' ' {
				want += string(c)
			}
		}
		if got != want {
			t.Errorf("%s: got %s, want %s", tc.name, got, want)
		}
		if !u.enter(b, 0) {
			t.Errorf("%s: another client is refused", tc.name)
		}
	}
	u := newUsage(route.Limits{Connections: 2})
	var entered [3]bool
	for i := range entered {
		entered[i] = u.enter(a, 0)
	}
	if entered != [3]bool{true, true, false} {
		t.Errorf("three requests at the same time: got in %v, want the third to be refused", entered)
	}
	if u.leave(a); !u.enter(a, 0) {
		t.Error("after one has ended: it is refused")
	}
}

func TestClientsThatAreQuietMakeRoom(t *testing.T) {
	u := newUsage(route.Limits{PerSecond: 1})
	at := netip.MustParseAddr("10.0.0.0")
	for range mostClients {
		if !u.enter(at, 0) {
			t.Fatalf("%s is refused", at)
		}
		u.leave(at)
		at = at.Next()
	}
	if u.enter(at, 0) {
		t.Error("got room for one more, want none while all are counted")
	}
	if !u.enter(at, time.Second) || len(u.mu.of) != 1 {
		t.Errorf("a second later: %d are counted, want the new one alone", len(u.mu.of))
	}
}

func TestNetworksAreOneClient(t *testing.T) {
	for address, want := range map[string]string{"192.0.2.1": "192.0.2.1", "2001:db8:0:1:2:3:4:5": "2001:db8:0:1::"} {
		if got := clientIn(netip.MustParseAddr(address)); got.String() != want {
			t.Errorf("%s: got %s, want %s", address, got, want)
		}
	}
}

func TestOneClientTooMuchIsRefused(t *testing.T) {
	b := newBed(t)
	hold, held := make(chan struct{}), make(chan struct{}, 1)
	up := b.backend(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hold" {
			held <- struct{}{}
			<-hold
		}
	})
	o := &route.Options{Limits: &route.Limits{Connections: 1}}
	b.serve("a.com", o, up)
	first := make(chan string, 1)
	client := b.client()
	go func() {
		res, err := client.Get("http://a.com/hold")
		if err != nil {
			first <- err.Error()
			return
		}
		res.Body.Close()
		first <- fmt.Sprint(res.StatusCode)
	}()
	<-held
	b.serve("a.com", &route.Options{Limits: &route.Limits{Connections: 1}}, up) // what is counted stays
	if code, _ := b.get("http://a.com/"); code != 503 {
		t.Errorf("a second request at the same time: got %d, want 503", code)
	}
	b.serve("b.com", &route.Options{Limits: &route.Limits{Connections: 1, Free: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}}}, up)
	if code, _ := b.get("http://b.com/"); code != 200 {
		t.Errorf("another site: got %d, want 200", code)
	}
	close(hold)
	if got := <-first; got != "200" {
		t.Errorf("the first: got %s, want 200", got)
	}
	if code, _ := b.get("http://a.com/"); code != 200 {
		t.Errorf("after it: got %d, want 200", code)
	}
}
