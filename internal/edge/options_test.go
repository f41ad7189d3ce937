package edge

import (
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/kemudi/kemudi/internal/edge/route"
)

func TestSitesRedirectRefuseAndRewrite(t *testing.T) {
	b := newBed(t)
	up := b.backend(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, r.Host, " ", r.RequestURI, " ", r.Header.Get("X-Forwarded-Prefix"))
	})
	all := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	for _, tc := range []struct {
		name    string
		o       route.Options
		url     string
		headers []string
		want    string
	}{
		{"plain", route.Options{}, "/a?b=c", nil, "200 a.com /a?b=c"},
		{"another host", route.Options{Host: "b.com", Prefix: "/p"}, "/a", nil, "200 b.com /a /p"},
		{"another path", route.Options{Rewrite: "/x?y=z"}, "/a?b=c", nil, "200 a.com /x?y=z&b=c"},
		{"a redirect", route.Options{Redirect: &route.Redirect{To: "https://b.com", Code: 301}}, "/a", nil, "301 https://b.com"},
		{"a root", route.Options{Root: "/app"}, "/", nil, "302 /app"},
		{"below a root", route.Options{Root: "/app"}, "/x", nil, "200 a.com /x"},
		{"to TLS", route.Options{Secure: true}, "/a", nil, "308 https://a.com/a"},
		{"allowed", route.Options{Allow: all}, "/", nil, "200 a.com /"},
		{"not allowed", route.Options{Allow: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}, "/", []string{"X-Forwarded-For: 10.0.0.1"}, "403 Forbidden"},
		{"denied", route.Options{Deny: all}, "/", nil, "403 Forbidden"},
		{"a page of another origin asks", route.Options{CORS: &route.CORS{Origins: []string{"https://*.b.com"}, Methods: "GET"}}, "OPTIONS /", []string{"Origin: https://x.b.com", "Access-Control-Request-Method: GET"}, "204 https://x.b.com"},
		{"a page of an origin that may not", route.Options{CORS: &route.CORS{Origins: []string{"https://*.b.com"}}}, "/", []string{"Origin: https://evil.com"}, "200 a.com /"},
	} {
		b.serve("a.com", &tc.o, up)
		method, path, ok := strings.Cut(tc.url, " ")
		if !ok {
			method, path = "GET", tc.url
		}
		res, text := b.do(method+" http://a.com"+path, tc.headers...)
		if at := res.Header.Get("Location"); at != "" {
			text = at
		}
		if origin := res.Header.Get("Access-Control-Allow-Origin"); origin != "" {
			text = origin
		}
		if got := fmt.Sprint(res.StatusCode, " ", text); got != tc.want {
			t.Errorf("%s: got %s, want %s", tc.name, got, tc.want)
		}
	}
	b.serve("a.com", &route.Options{MaxBody: 10}, up)
	for size, want := range map[int]int{10: 200, 11: 413} {
		res, err := b.client().Post("http://a.com/", "text/plain", strings.NewReader(strings.Repeat("x", size)))
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("a body of %d bytes: got %d, want %d", size, res.StatusCode, want)
		}
	}
	b.order(Order{Change: route.Change{Sites: map[string]*route.Site{"team/r": {
		Key: "team/r", Rules: []route.Rule{{Host: "r.com", Path: "/v1(/|$)(.*)", Type: route.Regex, Upstream: "a.com"}}, Options: &route.Options{Rewrite: "/$2"},
	}}}})
	if _, text := b.get("http://r.com/v1/things/x"); text != "r.com /things/x" {
		t.Errorf("a rewritten path: got %s, want /things/x", text)
	}
}

func TestClientsComeBackToTheirEndpoint(t *testing.T) {
	b := newBed(t)
	o := &route.Options{Affinity: &route.Affinity{Cookie: "route"}}
	one, two := b.naming("1"), b.naming("2")
	b.serve("a.com", o, one, two)
	res, first := b.do("http://a.com/")
	cookie := res.Header.Get("Set-Cookie")
	if !strings.HasPrefix(cookie, "route=") || !strings.Contains(cookie, "Path=/; HttpOnly") || strings.Contains(cookie, one) || strings.Contains(cookie, two) {
		t.Fatalf("got cookie %q, want one that names no address", cookie)
	}
	value, _, _ := strings.Cut(cookie, ";")
	for range 10 {
		res, text := b.do("http://a.com/", "Cookie: "+value)
		if text != first || res.Header.Get("Set-Cookie") != "" {
			t.Fatalf("got %s and cookie %q, want %s and none", text, res.Header.Get("Set-Cookie"), first)
		}
	}
	left := map[string]string{"1": two, "2": one}[first]
	b.serve("a.com", o, left)
	if res, text := b.do("http://a.com/", "Cookie: "+value); text == first || res.Header.Get("Set-Cookie") == "" {
		t.Errorf("after its endpoint has gone: got %s, want another with a new cookie", text)
	}
}

func TestCanariesTakeTheirPart(t *testing.T) {
	b := newBed(t)
	rules := []route.Rule{{Host: "a.com", Type: route.Prefix}}
	site := func(key string, c *route.Canary) *route.Site {
		s := &route.Site{Key: key, Rules: []route.Rule{rules[0]}, Options: &route.Options{Canary: c}}
		s.Rules[0].Upstream = key
		return s
	}
	change := route.Change{
		Sites:     map[string]*route.Site{"main": site("main", nil), "canary": site("canary", &route.Canary{Header: "X-Canary", Cookie: "canary"})},
		Upstreams: map[string]*route.Upstream{"main": {Endpoints: []string{b.naming("main")}}, "canary": {Endpoints: []string{b.naming("canary")}}},
	}
	b.order(Order{Change: change})
	for header, want := range map[string]string{
		"X-Other: x": "main", "X-Canary: always": "canary", "X-Canary: never": "main", "X-Canary: x": "main", "Cookie: canary=always": "canary", "Cookie: canary=never": "main",
	} {
		if _, text := b.get("http://a.com/", header); text != want {
			t.Errorf("%s: got %s, want %s", header, text, want)
		}
	}
	for value, want := range map[string]string{"eu": "canary", "us": "main"} {
		b.order(Order{Change: route.Change{Sites: map[string]*route.Site{"canary": site("canary", &route.Canary{Header: "Region", Value: "eu"})}}})
		if _, text := b.get("http://a.com/", "Region: "+value); text != want {
			t.Errorf("region %s: got %s, want %s", value, text, want)
		}
	}
	b.order(Order{Change: route.Change{Sites: map[string]*route.Site{"canary": site("canary", &route.Canary{Weight: 30})}}})
	seen := map[string]int{}
	for range 300 {
		_, text := b.get("http://a.com/")
		seen[text]++
	}
	if n := seen["canary"]; n < 30 || n > 180 {
		t.Errorf("got %v, want about 90 of the canary", seen)
	}
}
