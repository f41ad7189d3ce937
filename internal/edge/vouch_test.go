package edge

import (
	"errors"
	"fmt"
	"testing"

	"github.com/kemudi/kemudi/internal/edge/route"
	"github.com/kemudi/kemudi/test/wait"
)

// TestACMEServersAreAnsweredForHostsWithAnAccount asks for challenges, and for what looks like some.
func TestACMEServersAreAnsweredForHostsWithAnAccount(t *testing.T) {
	b := newBed(t)
	site := func(host, account string) *route.Site {
		return &route.Site{Key: host, Rules: []route.Rule{{Host: host, Type: route.Prefix, Upstream: host}}, TLS: []route.TLS{{Hosts: []string{host}}}, Options: &route.Options{PlainToo: true}, Account: account}
	}
	b.order(Order{Change: route.Change{
		Sites:     map[string]*route.Site{"a.com": site("a.com", "print"), "b.com": site("b.com", "")},
		Upstreams: map[string]*route.Upstream{"a.com": {Endpoints: []string{b.naming("a")}}, "b.com": {Endpoints: []string{b.naming("b")}}},
	}})
	for url, want := range map[string]string{
		"http://a.com/.well-known/acme-challenge/To-ken_1":  "200 To-ken_1.print",
		"http://a.com/.well-known/acme-challenge/":          "200 a",
		"http://a.com/.well-known/acme-challenge/x%3Cb%3E":  "200 a",
		"http://a.com/.well-known/acme-challenge/x/y":       "200 a",
		"https://a.com/.well-known/acme-challenge/To-ken_1": "200 a",
		"http://b.com/.well-known/acme-challenge/To-ken_1":  "200 b",
		"http://c.com/.well-known/acme-challenge/To-ken_1":  "404 default backend - 404",
	} {
		code, text := b.get(url)
		if got := fmt.Sprint(code, " ", text); got != want {
			t.Errorf("%s: got %s, want %s", url, got, want)
		}
	}
}

// TestACMEServersAreAnsweredThroughDoors asks a Gateway, whose routes have all paths, too.
func TestACMEServersAreAnsweredThroughDoors(t *testing.T) {
	b := newBed(t)
	b.order(Order{Change: route.Change{
		Upstreams: map[string]*route.Upstream{"u": {Endpoints: []string{b.naming("u")}}},
		Doors: map[string]*route.Door{"g:80": {Port: doorPort, Public: 80, Vouch: &route.Vouch{Account: "print", Hosts: []string{"a.com"}}, Listeners: []route.Listener{
			{Host: "b.com", Sites: []*route.Site{to("b", "b.com", map[string]route.Action{"/": {Backends: only("u")}})}},
		}}},
	}})
	wait.Until(b.T, func() error {
		if b.at(doorPort) == "" {
			return errors.New("the door is not open")
		}
		return nil
	})
	for at, want := range map[[2]string]string{
		{"a.com", "/.well-known/acme-challenge/To-ken_1"}: "200 To-ken_1.print",
		{"a.com", "/"}: "404 no route is for this",
		{"b.com", "/.well-known/acme-challenge/To-ken_1"}: "200 u",
	} {
		code, text := b.get(fmt.Sprintf("http://%s:%d%s", at[0], doorPort, at[1]), "Host: "+at[0])
		if got := fmt.Sprint(code, " ", text); got != want {
			t.Errorf("%s: got %s, want %s", at, got, want)
		}
	}
}
