package edge

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/kemudi/kemudi/internal/edge/route"
)

func basic(name, password string) string {
	return "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(name+":"+password))
}

func TestClientsLogIn(t *testing.T) {
	b := newBed(t)
	users := map[string]string{"ann": "$apr1$saltsalt$LrttParrLPdxvgutaSXWJ0", "bob": "{PLAIN}other"}
	b.serve("a.com", &route.Options{Login: &route.Login{Realm: "the team", Users: users}}, b.naming("a"))
	for _, tc := range []struct {
		name, header string
		want         int
	}{
		{"nobody", "X-A: b", 401},
		{"the password", basic("ann", "secret"), 200},
		{"again", basic("ann", "secret"), 200},
		{"that of another one", basic("bob", "secret"), 401},
		{"a wrong one", basic("ann", "other"), 401},
		{"a name that is not there", basic("eve", "secret"), 401},
		{"no name", basic("", ""), 401},
		{"no login", "Authorization: Bearer secret", 401},
	} {
		res, _ := b.do("http://a.com/", tc.header)
		if res.StatusCode != tc.want {
			t.Errorf("%s: got %d, want %d", tc.name, res.StatusCode, tc.want)
		}
		if got, want := res.Header.Get("WWW-Authenticate"), `Basic realm="the team", charset="UTF-8"`; tc.want == 401 && got != want {
			t.Errorf("%s: is asked %q, want %q", tc.name, got, want)
		}
	}
	b.serve("a.com", &route.Options{Login: &route.Login{Users: map[string]string{"ann": "{PLAIN}new"}}}, b.naming("a"))
	if code, _ := b.get("http://a.com/", basic("ann", "secret")); code != 401 {
		t.Errorf("after a change of the password: got %d, want 401", code)
	}
	b.serve("b.com", &route.Options{Login: &route.Login{}}, b.naming("b"))
	if code, _ := b.get("http://b.com/", basic("ann", "secret")); code != 401 {
		t.Errorf("a site without users: got %d, want 401", code)
	}
}

// authority says what may pass: whoever shows a token of a letter, as the user of that name.
func authority(last *atomic.Pointer[http.Request]) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		last.Store(r)
		switch token := r.Header.Get("X-Token"); token {
		case "":
			w.Header().Set("WWW-Authenticate", "Bearer")
			w.WriteHeader(http.StatusUnauthorized)
		case "broken":
			w.WriteHeader(http.StatusBadGateway)
		case "evil":
			w.WriteHeader(http.StatusForbidden)
		default:
			w.Header().Set("X-User", token)
			w.Header().Set("X-Forwarded-User", token)
			w.Header().Set("Set-Cookie", "session="+token)
			w.WriteHeader(http.StatusAccepted)
		}
	}
}

func TestAnotherServiceSaysWhatMayPass(t *testing.T) {
	b := newBed(t)
	var last atomic.Pointer[http.Request]
	up := b.backend(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "as "+strings.Join(r.Header.Values("X-User"), ",")+", "+r.Header.Get("X-Forwarded-User")+" in "+r.Header.Get("X-Group"))
	})
	b.order(Order{Change: route.Change{Upstreams: map[string]*route.Upstream{"team/auth:80": {Endpoints: []string{"127.0.0.1:1", b.backend(authority(&last))}}}}})
	o := &route.Options{Auth: &route.Auth{URL: "http://auth.team.svc/ask?of=$host", Upstream: "team/auth:80", Headers: []string{"X-User", "X-Group", "X-Forwarded-User"}}}
	b.serve("a.com", o, up)
	for _, tc := range []struct {
		name    string
		headers []string
		want    string
	}{
		{"nobody", nil, "401 Unauthorized Bearer"},
		{"somebody", []string{"X-Token: ann", "X-User: root", "X-Forwarded-User: root", "X-Group: admins"}, "200 as ann, ann in session=ann"},
		{"who may not", []string{"X-Token: evil"}, "403 Forbidden "},
		{"an answer that says neither", []string{"X-Token: broken"}, "500 Internal Server Error "},
	} {
		res, text := b.do("http://a.com/x?y=z", tc.headers...)
		said := res.Header.Get("Set-Cookie") + res.Header.Get("WWW-Authenticate")
		if got := fmt.Sprint(res.StatusCode, " ", text, " ", said); got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
	}
	r := last.Load()
	for name, want := range map[string]string{
		"X-Original-Url": "http://a.com/x?y=z", "X-Original-Method": "GET", "X-Real-Ip": "127.0.0.1", "X-Auth-Request-Redirect": "/x?y=z", "X-Token": "broken",
	} {
		if got := r.Header.Get(name); got != want {
			t.Errorf("header %s of the question: got %q, want %q", name, got, want)
		}
	}
	if r.Host != "auth.team.svc" || r.RequestURI != "/ask?of=a.com" {
		t.Errorf("asked at %s%s, want auth.team.svc/ask?of=a.com", r.Host, r.RequestURI)
	}
	o.Auth.SignIn = "https://$host/in"
	b.serve("a.com", o, up)
	if res, _ := b.do("http://a.com/x?y=z"); res.StatusCode != 302 || res.Header.Get("Location") != "https://a.com/in?rd=http://a.com%2Fx%3Fy%3Dz" {
		t.Errorf("got %d to %s, want where to sign in", res.StatusCode, res.Header.Get("Location"))
	}
	b.order(Order{Change: route.Change{Upstreams: map[string]*route.Upstream{"team/auth:80": nil}}})
	if code, _ := b.get("http://a.com/", "X-Token: ann"); code != 500 {
		t.Errorf("without who says it: got %d, want 500", code)
	}
}

// A site's own host is asked where a request for it would go; this machine's other addresses are not.
func TestWhoSaysWhatMayPassIsFoundByTheTable(t *testing.T) {
	b := newBed(t)
	var last atomic.Pointer[http.Request]
	b.serve("login.com", nil, b.backend(authority(&last)))
	for url, want := range map[string]int{"https://login.com/ask": 200, "http://127.0.0.1:1/ask": 500} {
		b.serve("a.com", &route.Options{Auth: &route.Auth{URL: url}}, b.naming("a"))
		if code, _ := b.get("http://a.com/", "X-Token: ann"); code != want {
			t.Errorf("%s: got %d, want %d", url, code, want)
		}
	}
	open := b.backend(func(http.ResponseWriter, *http.Request) {})
	b.serve("a.com", &route.Options{Auth: &route.Auth{URL: "http://" + open + "/"}}, b.naming("a"))
	if code, _ := b.get("http://a.com/"); code != 500 {
		t.Errorf("a port of the machine itself: got %d, want 500", code)
	}
}

func TestCanariesAreKeptByTheirSite(t *testing.T) {
	b := newBed(t)
	rule := func(up string) []route.Rule { return []route.Rule{{Host: "a.com", Type: route.Prefix, Upstream: up}} }
	b.order(Order{Change: route.Change{
		Sites: map[string]*route.Site{
			"main":   {Key: "main", Rules: rule("main"), Options: &route.Options{Deny: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}},
			"canary": {Key: "canary", Rules: rule("canary"), Options: &route.Options{Canary: &route.Canary{Header: "X-Canary"}}},
		},
		Upstreams: map[string]*route.Upstream{"main": {Endpoints: []string{b.naming("main")}}, "canary": {Endpoints: []string{b.naming("canary")}}},
	}})
	if code, text := b.get("http://a.com/", "X-Canary: always"); code != 403 {
		t.Errorf("got %d %s, want what the site itself says: 403", code, text)
	}
}
