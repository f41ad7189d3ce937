package edge

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kemudi/kemudi/internal/edge/route"
	"github.com/kemudi/kemudi/test/wait"
)

const doorPort = 30080

// through has a door with one listener of each host, whose routes are sites of rules and actions.
func (b *bed) through(c route.Change, listeners ...route.Listener) {
	b.Helper()
	c.Doors = map[string]*route.Door{"g:80": {Port: doorPort, Public: 80, Listeners: listeners}}
	b.order(Order{Change: c})
	wait.Until(b.T, func() error {
		if b.at(doorPort) == "" {
			return fmt.Errorf("the door is not open")
		}
		return nil
	})
}

// to is a site with one rule an action, for prefixes of paths.
func to(key, host string, actions map[string]route.Action) *route.Site {
	s := &route.Site{Key: key}
	for path, a := range actions {
		s.Actions = append(s.Actions, a)
		s.Rules = append(s.Rules, route.Rule{Host: host, Path: path, Type: route.Prefix, Do: len(s.Actions)})
	}
	return s
}

func only(upstream string) []route.Backend { return []route.Backend{{Upstream: upstream, Weight: 1}} }

func TestDoorsDoWhatRoutesSay(t *testing.T) {
	b := newBed(t)
	echo := b.backend(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Drop", "x")
		fmt.Fprint(w, r.Host, r.URL.RequestURI(), " ", r.Header.Get("X-Set"), " ", strings.Join(r.Header["X-Add"], ","), " ", r.Header.Get("X-Remove"), " ", r.Header.Get("X-Forwarded-Port"))
	})
	var copies atomic.Int32
	mirror := b.backend(func(http.ResponseWriter, *http.Request) { copies.Add(1) })
	slow := b.backend(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	site := to("team/web", "a.com", map[string]route.Action{
		"/plain":    {Backends: only("echo")},
		"/headers":  {Backends: only("echo"), Request: &route.HeaderChange{Set: []route.Header{{Name: "X-Set", Value: "1"}}, Add: []route.Header{{Name: "X-Add", Value: "2"}}, Remove: []string{"X-Remove"}}, Response: &route.HeaderChange{Remove: []string{"X-Drop"}}},
		"/prefix":   {Backends: only("echo"), Rewrite: &route.Rewrite{Host: "b.com", Path: &route.PathChange{To: "/other", Prefix: true}}},
		"/full":     {Backends: only("echo"), Rewrite: &route.Rewrite{Path: &route.PathChange{To: "/one"}}},
		"/redirect": {Redirect: &route.RedirectTo{Scheme: "https", Port: 8443, Path: &route.PathChange{To: "/there", Prefix: true}, Code: 302}},
		"/away":     {Redirect: &route.RedirectTo{Scheme: "https", Code: 308}},
		"/nobody":   {Backends: []route.Backend{{Weight: 1}}},
		"/zero":     {Backends: []route.Backend{{Upstream: "echo"}}},
		"/empty":    {Backends: only("empty")},
		"/copied":   {Backends: only("echo"), Mirrors: []route.Mirror{{Upstream: "mirror", Part: 1, Of: 1}, {Upstream: "mirror", Part: 0, Of: 1}}},
		"/late":     {Backends: only("slow"), Limit: 50},
		"/attempt":  {Backends: only("slow"), Attempt: 50},
	})
	c := route.Change{Upstreams: map[string]*route.Upstream{"echo": {Endpoints: []string{echo}}, "mirror": {Endpoints: []string{mirror}}, "slow": {Endpoints: []string{slow}}, "empty": {}}}
	b.through(c, route.Listener{Host: "*.a.com"}, route.Listener{Sites: []*route.Site{site}})
	for path, want := range map[string]string{
		"/plain?q=1":      "200 a.com/plain?q=1  9 8 80",
		"/headers":        "200 a.com/headers 1 9,2  80",
		"/prefix/x":       "200 b.com/other/x  9 8 80",
		"/full/x":         "200 a.com/one  9 8 80",
		"/redirect/x?q=1": "302 https://a.com:8443/there/x?q=1",
		"/away":           "308 https://a.com/away",
		"/nobody":         "500 ",
		"/zero":           "500 ",
		"/empty":          "503 ",
		"/none":           "404 ",
		"/copied":         "200 a.com/copied  9 8 80",
		"/late":           "504 ",
		"/attempt":        "504 ",
	} {
		res, text := b.do(fmt.Sprintf("http://a.com:%d%s", doorPort, path), "Host: a.com", "X-Add: 9", "X-Remove: 8")
		got := fmt.Sprint(res.StatusCode, " ")
		switch {
		case res.StatusCode == http.StatusOK:
			got += text
		case res.StatusCode < 400:
			got += res.Header.Get("Location")
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
		if dropped := res.Header.Get("X-Drop") == ""; res.StatusCode == 200 && dropped != (path == "/headers") {
			t.Errorf("%s: X-Drop in the answer: got %q", path, res.Header.Get("X-Drop"))
		}
	}
	wait.Until(t, func() error {
		if copies.Load() != 1 {
			return fmt.Errorf("%d copies were made, want 1", copies.Load())
		}
		return nil
	})
	// A listener that is for the host takes the request, though it has no route and another has.
	if status, _ := b.get(fmt.Sprintf("http://x.a.com:%d/plain", doorPort), "Host: x.a.com"); status != 404 {
		t.Errorf("a host of another listener: got %d, want 404", status)
	}
}

func TestBackendsGetTheirShare(t *testing.T) {
	b := newBed(t)
	backends := []route.Backend{{Upstream: "one", Weight: 3}, {Upstream: "two", Weight: 1}, {Upstream: "never"}}
	b.through(route.Change{Upstreams: map[string]*route.Upstream{"one": {Endpoints: []string{b.naming("one")}}, "two": {Endpoints: []string{b.naming("two")}}, "never": {Endpoints: []string{b.naming("never")}}}},
		route.Listener{Sites: []*route.Site{to("team/web", "", map[string]route.Action{"/": {Backends: backends}})}})
	got := map[string]int{}
	client := b.client()
	ask, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("http://a.com:%d/", doorPort), nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 200 {
		_, text := b.send(client, ask)
		got[text]++
	}
	if got["never"] != 0 || got["one"] < 110 || got["two"] < 20 {
		t.Errorf("of 200 requests with weights 3, 1 and 0: got %v", got)
	}
}

// secret is a certificate for names, as PEM, with what believes it.
func secret(t *testing.T, names ...string) (*route.Certificate, []byte) {
	t.Helper()
	c := pair(t, names...)
	return c, c.Chain
}

func TestOnePortSortsTLSByName(t *testing.T) {
	b := newBed(t)
	secure := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "passed ", r.TLS.ServerName) }))
	t.Cleanup(secure.Close)
	web, _ := secret(t, "web.com")
	other, _ := secret(t, "other.com")
	bytes, _ := secret(t, "bytes.com")
	c := route.Change{
		Upstreams: map[string]*route.Upstream{
			"web": {Endpoints: []string{b.backend(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "web ", r.Header.Get("X-Forwarded-Proto")) })}},
			"tls": {Endpoints: []string{strings.TrimPrefix(secure.URL, "https://")}}, "bytes": {Endpoints: []string{b.naming("bytes")}},
		},
		Certificates: map[string]*route.Certificate{"web": web, "other": other, "bytes": bytes},
	}
	b.through(c,
		route.Listener{Host: "web.com", Mode: route.Secure, Certificates: []string{"other", "web"}, Sites: []*route.Site{to("t/web", "web.com", map[string]route.Action{"/": {Backends: only("web")}})}},
		route.Listener{Host: "other.com", Mode: route.Secure, Certificates: []string{"other"}},
		route.Listener{Host: "*.pass.com", Mode: route.Pass, Sites: []*route.Site{to("t/pass", "*.pass.com", map[string]route.Action{"": {Backends: only("tls")}})}},
		route.Listener{Host: "bytes.com", Mode: route.Terminate, Certificates: []string{"bytes"}, Sites: []*route.Site{to("t/bytes", "bytes.com", map[string]route.Action{"": {Backends: only("bytes")}})}},
	)
	ask := func(name, host string) (string, []*x509.Certificate) {
		t.Helper()
		conn, err := tls.Dial("tcp", b.at(doorPort), &tls.Config{ServerName: name, InsecureSkipVerify: true})
		if err != nil {
			return "refused", nil
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", host)
		answer, err := io.ReadAll(conn)
		if err != nil && len(answer) == 0 {
			t.Fatalf("%s: %v", name, err)
		}
		head, body, _ := strings.Cut(string(answer), "\r\n\r\n")
		return strings.TrimSpace(strings.Fields(head)[1] + " " + body), conn.ConnectionState().PeerCertificates
	}
	for _, tc := range []struct{ name, host, want, shows string }{
		{"web.com", "web.com", "200 web https", "web.com"},
		{"web.com", "other.com", "421 Misdirected Request", "web.com"},
		{"a.b.pass.com", "x", "200 passed a.b.pass.com", ""},
		{"bytes.com", "x", "200 bytes", "bytes.com"},
		{"nobody.com", "x", "refused", ""},
	} {
		got, chain := ask(tc.name, tc.host)
		if got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
		if tc.shows != "" && (len(chain) == 0 || chain[0].VerifyHostname(tc.shows) != nil) {
			t.Errorf("%s is shown a certificate that is not for %s", tc.name, tc.shows)
		}
	}
}

func TestBackendsAreKnownByTheirCertificates(t *testing.T) {
	b := newBed(t)
	cert, authority := secret(t, "backend.com")
	own, err := tls.X509KeyPair(cert.Chain, cert.Key)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.TLS.ServerName) }))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{own}}
	s.StartTLS()
	t.Cleanup(s.Close)
	_, foreign := secret(t, "backend.com")
	with := func(trust route.Trust) route.Action {
		return route.Action{Backends: []route.Backend{{Upstream: "s", Weight: 1, Protocol: route.HTTPS, Trust: &trust}}}
	}
	b.through(route.Change{Upstreams: map[string]*route.Upstream{"s": {Endpoints: []string{strings.TrimPrefix(s.URL, "https://")}}}},
		route.Listener{Sites: []*route.Site{to("t/web", "", map[string]route.Action{
			"/good":    with(route.Trust{Name: "backend.com", Authorities: authority}),
			"/name":    with(route.Trust{Name: "other.com", Authorities: authority}),
			"/other":   with(route.Trust{Name: "other.com", Authorities: authority, Hosts: []string{"backend.com"}}),
			"/foreign": with(route.Trust{Name: "backend.com", Authorities: foreign}),
			"/system":  with(route.Trust{Name: "backend.com"}),
		})}})
	for path, want := range map[string]string{"/good": "200 backend.com", "/name": "502", "/other": "200 other.com", "/foreign": "502", "/system": "502"} {
		status, text := b.get(fmt.Sprintf("http://a.com:%d%s", doorPort, path))
		got := fmt.Sprint(status)
		if status == 200 {
			got += " " + text
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
}

// Those of Ingresses are, too, where that is wanted, and are shown what is said.
func TestBackendsOfSitesAreKnownByTheirCertificates(t *testing.T) {
	b := newBed(t)
	cert, authority := secret(t, "backend.com")
	shown, _ := secret(t, "edge.com")
	own, err := tls.X509KeyPair(cert.Chain, cert.Key)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who := ""
		if c := r.TLS.PeerCertificates; len(c) > 0 {
			who = c[0].DNSNames[0]
		}
		fmt.Fprintf(w, "%q %q", r.TLS.ServerName, who)
	}))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{own}, ClientAuth: tls.RequestClientCert}
	s.StartTLS()
	t.Cleanup(s.Close)
	b.order(Order{Change: route.Change{Certificates: map[string]*route.Certificate{"t/edge": shown}}})
	for _, tc := range []struct {
		name  string
		trust *route.Trust
		want  string
	}{
		{"nobody asks", nil, `200 "" ""`},
		{"known", &route.Trust{Name: "backend.com", Authorities: authority}, `200 "backend.com" ""`},
		{"another name", &route.Trust{Name: "other.com", Authorities: authority}, "502 "},
		{"no authority of the machine's", &route.Trust{Name: "backend.com"}, "502 "},
		{"any, which is shown who asks", &route.Trust{Certificate: "t/edge", Unknown: true}, `200 "" "edge.com"`},
		{"nobody asks any more", nil, `200 "" ""`},
	} {
		b.serve("a.com", &route.Options{Protocol: route.HTTPS, Trust: tc.trust}, strings.TrimPrefix(s.URL, "https://"))
		status, text := b.get("http://a.com/")
		if got := fmt.Sprint(status, " ", text); !strings.HasPrefix(got, tc.want) {
			t.Errorf("%s: got %s, want %s", tc.name, got, tc.want)
		}
	}
	b.edge.forward.trusted.mu.Lock()
	defer b.edge.forward.trusted.mu.Unlock()
	if n := len(b.edge.forward.trusted.mu.by); n != 0 {
		t.Errorf("%d ways of knowing backends are kept that nobody uses", n)
	}
}

// Copies go to backends as requests would: those of which it is said how they are known get none if they are not.
func TestCopiesGoByTLSToWhoSpeaksIt(t *testing.T) {
	b := newBed(t)
	cert, authority := secret(t, "copies.com")
	own, err := tls.X509KeyPair(cert.Chain, cert.Key)
	if err != nil {
		t.Fatal(err)
	}
	copies := make(chan string, 10)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { copies <- r.URL.Path }))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{own}}
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.StartTLS()
	t.Cleanup(s.Close)
	copying := func(trust *route.Trust) route.Action {
		return route.Action{Backends: only("main"), Mirrors: []route.Mirror{{Upstream: "copies", Protocol: route.HTTPS, Trust: trust, Part: 1, Of: 1}}}
	}
	b.through(route.Change{Upstreams: map[string]*route.Upstream{"main": {Endpoints: []string{b.naming("main")}}, "copies": {Endpoints: []string{strings.TrimPrefix(s.URL, "https://")}}}},
		route.Listener{Sites: []*route.Site{to("t/web", "", map[string]route.Action{
			"/other": copying(&route.Trust{Name: "other.com", Authorities: authority}),
			"/known": copying(&route.Trust{Name: "copies.com", Authorities: authority}),
			"/any":   copying(nil),
		})}})
	for _, path := range []string{"/other", "/known", "/any"} {
		if status, _ := b.get(fmt.Sprintf("http://a.com:%d%s", doorPort, path)); status != http.StatusOK {
			t.Errorf("%s: got %d, want 200", path, status)
		}
	}
	got := map[string]bool{}
	for range 2 {
		select {
		case path := <-copies:
			got[path] = true
		case <-time.After(wait.Patience):
			t.Fatalf("got copies %v, want those of /known and /any", got)
		}
	}
	if !got["/known"] || !got["/any"] {
		t.Errorf("got copies %v, want those of /known and /any", got)
	}
}

// What a browser is told of a route with a filter CORS: a star stands for any labels of a host, and nothing is allowed
// by a star together with credentials.
func TestDoorsTellBrowsersWhichOriginsMayAsk(t *testing.T) {
	b := newBed(t)
	with := func(c route.CORS) route.Action {
		c.Deep, c.MaxAge = true, 5
		return route.Action{Backends: only("web"), CORS: &c}
	}
	b.through(route.Change{Upstreams: map[string]*route.Upstream{"web": {Endpoints: []string{b.naming("web")}}}},
		route.Listener{Sites: []*route.Site{to("t/web", "", map[string]route.Action{
			"/some": with(route.CORS{Origins: []string{"https://foo.com:443", "https://*.bar.com"}, Methods: "GET, PUT", Headers: "x-1", Expose: "x-2"}),
			"/open": with(route.CORS{Origins: []string{"*"}, Methods: "*", Headers: "*", Expose: "*"}),
			"/all":  with(route.CORS{Origins: []string{"*"}, Methods: "*", Headers: "*", Expose: "*", Credentials: true}),
			"/tls":  with(route.CORS{Origins: []string{"https://*"}}),
		})}})
	names := []string{"Origin", "Credentials", "Methods", "Headers"}
	for _, tc := range []struct{ path, origin, first, then string }{
		{"/some", "https://foo.com", "https://foo.com  GET, PUT x-1 x-2", "https://foo.com    x-2"},
		{"/some", "https://a.b.bar.com", "https://a.b.bar.com  GET, PUT x-1 x-2", "https://a.b.bar.com    x-2"},
		{"/some", "https://a.bar.com:8443", "    ", "    "},
		{"/some", "https://bar.com", "    ", "    "},
		{"/some", "https://evil.com/.bar.com", "    ", "    "},
		{"/some", "http://foo.com", "    ", "    "},
		{"/open", "https://x.com", "*  * * *", "*    *"},
		{"/all", "https://x.com", "https://x.com true PUT x-9 ", "https://x.com true   "},
		{"/tls", "https://x.y", "https://x.y    ", "https://x.y    "},
		{"/tls", "http://x.y", "    ", "    "},
	} {
		say := func(h http.Header) string {
			var list []string
			for _, n := range names {
				list = append(list, h.Get("Access-Control-Allow-"+n))
			}
			return strings.Join(append(list, h.Get("Access-Control-Expose-Headers")), " ")
		}
		url := fmt.Sprintf("http://a.com:%d%s", doorPort, tc.path)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodOptions, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range map[string]string{"Origin": tc.origin, "Access-Control-Request-Method": "PUT", "Access-Control-Request-Headers": "x-9"} {
			r.Header.Set(name, value)
		}
		res, err := b.client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if got := say(res.Header); res.StatusCode != http.StatusNoContent || got != tc.first {
			t.Errorf("%s asks first for %s: got %d %q, want 204 %q", tc.origin, tc.path, res.StatusCode, got, tc.first)
		}
		res, _ = b.do(url, "Origin: "+tc.origin)
		if got := say(res.Header); got != tc.then {
			t.Errorf("%s asks for %s: got %q, want %q", tc.origin, tc.path, got, tc.then)
		}
	}
}

var _ net.Conn = (*replayed)(nil)
