package edge

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/kemudi/kemudi/internal/edge/route"
)

const (
	// authPatience is how long who is asked whether a request may pass may take for the answer.
	authPatience = 10 * time.Second
	// authBody is how much of that answer's body is read, so that its connection can be kept.
	authBody = 64 << 10
	// defaultReturn names where a client is to come back to from where it signs in.
	defaultReturn = "rd"
)

// newElsewhere is the transport to who says what may pass and is no service of the cluster.
func newElsewhere() *http.Transport {
	return &http.Transport{
		DialContext:        (&net.Dialer{Timeout: connectTimeout, Control: notHere}).DialContext,
		DisableCompression: true, MaxIdleConnsPerHost: idlePerAddress, IdleConnTimeout: idleUpstream, TLSHandshakeTimeout: 2 * connectTimeout,
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}, ResponseHeaderTimeout: authPatience, MaxResponseHeaderBytes: 256 << 10,
	}
}

// notHere keeps who may make an Ingress from asking what only this machine may ask: itself, and
// what clouds tell machines of themselves.
func notHere(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	if a := at.Addr().Unmap(); a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsUnspecified() || a.IsMulticast() {
		return fmt.Errorf("%s is an address of this machine or its link, which nobody is asked at", a)
	}
	return nil
}

// allowed says whether who is asked by a site lets a request pass; if not, it has been answered.
func (x *exchange) allowed(a *answer, r *http.Request) bool {
	o := x.o.Auth
	if o == nil {
		return true
	}
	ctx, cancel := context.WithTimeout(r.Context(), authPatience)
	defer cancel()
	res, err := x.ask(ctx, o, r)
	if err != nil {
		x.e.o.Log.Debug("nobody says whether a request may pass", "ingress", x.target.Site.Key, "err", err)
		x.e.refuse(a, "auth", http.StatusInternalServerError)
		return false
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, authBody)) // that the connection is not kept is all that can come of it
	switch code := res.StatusCode; {
	case code >= 200 && code < 300:
		for _, name := range o.Headers {
			r.Header.Del(name) // whatever the client says
			for _, v := range res.Header.Values(name) {
				r.Header.Add(name, v)
			}
		}
		x.cookies = res.Header.Values("Set-Cookie")
		return true
	case code == http.StatusUnauthorized && o.SignIn != "":
		to, err := x.signIn(o, r)
		if err != nil {
			x.e.refuse(a, "auth", http.StatusInternalServerError)
			return false
		}
		for _, c := range res.Header.Values("Set-Cookie") {
			a.Header().Add("Set-Cookie", c)
		}
		x.e.metrics.refused.WithLabelValues("auth").Inc()
		x.redirect(a, to, http.StatusFound)
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		for _, v := range res.Header.Values("WWW-Authenticate") {
			a.Header().Add("WWW-Authenticate", v)
		}
		x.e.refuse(a, "auth", code)
	default:
		x.e.refuse(a, "auth", http.StatusInternalServerError)
	}
	return false
}

// variables are what a site's addresses may have of a request.
func (x *exchange) variables(r *http.Request) func(name string) (string, bool) {
	return func(name string) (string, bool) {
		switch name {
		case "host":
			return x.host, true
		case "http_host":
			return r.Host, true
		case "scheme":
			return scheme(r), true
		case "request_uri":
			return r.URL.RequestURI(), true
		case "escaped_request_uri":
			return url.QueryEscape(r.URL.RequestURI()), true
		case "request_method":
			return r.Method, true
		case "remote_addr":
			return x.client.String(), true
		}
		return "", false
	}
}

// signIn is where a client is sent that is not known, with where it is to come back to.
func (x *exchange) signIn(o *route.Auth, r *http.Request) (string, error) {
	to, err := route.Expand(o.SignIn, x.variables(r))
	if err != nil {
		return "", err
	}
	back := o.Return
	if back == "" {
		back = defaultReturn
	}
	if strings.Contains(to, "?"+back+"=") || strings.Contains(to, "&"+back+"=") {
		return to, nil
	}
	sign := "?"
	if strings.Contains(to, "?") {
		sign = "&"
	}
	return to + sign + back + "=" + scheme(r) + "://" + r.Host + url.QueryEscape(r.URL.RequestURI()), nil
}

// ask asks whether a request may pass: with its headers, and without its body.
func (x *exchange) ask(ctx context.Context, o *route.Auth, r *http.Request) (*http.Response, error) {
	text, err := route.Expand(o.URL, x.variables(r))
	if err != nil {
		return nil, err
	}
	method := o.Method
	if method == "" {
		method = http.MethodGet
	}
	q, err := http.NewRequestWithContext(ctx, method, text, nil)
	if err != nil {
		return nil, err
	}
	q.Header = r.Header.Clone()
	for _, name := range hopByHop {
		q.Header.Del(name)
	}
	put(q.Header, x.vouch(q.Header, r))
	q.Header["X-Original-Url"] = []string{scheme(r) + "://" + r.Host + r.URL.RequestURI()}
	q.Header["X-Original-Method"] = []string{r.Method}
	back := r.URL.RequestURI()
	if o.Redirect != "" {
		if back, err = route.Expand(o.Redirect, x.variables(r)); err != nil {
			return nil, err
		}
	}
	q.Header["X-Auth-Request-Redirect"] = []string{back}
	if p, t := x.asked(o, q.URL); p != nil {
		return x.askOne(q, p, t)
	}
	return x.e.forward.elsewhere.RoundTrip(q)
}

// hopByHop are headers of one connection, or of a body that is not sent.
var hopByHop = []string{"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Content-Length", "Content-Type", "Content-Encoding", "Expect"}

// asked are the endpoints of who is asked, if they are the cluster's: those of a service, or those
// to which a site of the same namespace would lead. nil: it is elsewhere.
func (x *exchange) asked(o *route.Auth, to *url.URL) (*pool, *http.Transport) {
	plain, safe := x.e.forward.transports[route.HTTP], x.e.forward.transports[route.HTTPS]
	if o.Upstream != "" {
		p := x.s.pools[o.Upstream]
		if p == nil {
			p = &pool{}
		}
		if to.Scheme == "https" {
			return p, safe
		}
		return p, plain
	}
	host, ok := route.Canonical(to.Host)
	path, clean := route.Clean(to.Path)
	if !ok || !clean {
		return nil, nil
	}
	t := x.s.table.Find(host, path, nil)
	if t == nil || namespaceOf(t.Site.Key) != namespaceOf(x.target.Site.Key) || x.s.pools[t.Upstream] == nil {
		return nil, nil
	}
	to.Scheme = "http"
	if t.Site.Options != nil && t.Site.Options.Protocol == route.HTTPS {
		to.Scheme = "https"
		return x.s.pools[t.Upstream], safe
	}
	return x.s.pools[t.Upstream], plain
}

func namespaceOf(key string) string {
	namespace, _, _ := strings.Cut(key, "/")
	return namespace
}

// askOne asks one endpoint, and another one if it cannot be reached.
func (x *exchange) askOne(q *http.Request, p *pool, t *http.Transport) (*http.Response, error) {
	q.Host = q.URL.Host
	var tried []*endpoint
	last := errNobody
	for range defaultTries {
		now := time.Since(x.e.began)
		one := p.pick(now, "", tried)
		if one == nil {
			break
		}
		to := *q.URL
		to.Host = one.address
		out := q.Clone(q.Context())
		out.URL = &to
		res, err := t.RoundTrip(out)
		if err == nil {
			one.reached()
			return res, nil
		}
		last = errors.Join(last, err)
		if !unsent(err) {
			break
		}
		one.missed(now)
		tried = append(tried, one)
	}
	return nil, last
}
