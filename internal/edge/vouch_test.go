package edge

import (
	"fmt"
	"testing"

	"github.com/kemudi/kemudi/internal/edge/route"
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
