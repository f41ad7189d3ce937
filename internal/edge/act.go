package edge

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"strings"
	"time"

	"github.com/kemudi/kemudi/internal/edge/route"
	"github.com/kemudi/kemudi/internal/task"
)

// errLate ends a request that has taken longer than its rule lets it.
var errLate = errors.New("the request has taken longer than its route lets it")

// act does with a request what its rule wants.
func (x *exchange) act(a *answer, r *http.Request) {
	do := x.target.Action
	x.origin = r.Header.Get("Origin")
	if c := do.CORS; c != nil && x.asksFirst(a, r, c) {
		return
	}
	if do.Redirect != nil {
		x.redirect(a, x.elsewhere(do.Redirect, r), do.Redirect.Code)
		return
	}
	x.backend = choose(do.Backends)
	if x.backend == nil || x.backend.Upstream == "" {
		x.backend = nil
		x.e.answer(a, http.StatusInternalServerError, "the route has no backend that can be used")
		return
	}
	x.upstream, x.protocol = x.backend.Upstream, x.backend.Protocol
	x.pool = x.s.pools[x.upstream]
	if x.pool == nil || len(x.pool.endpoints) == 0 {
		x.e.answer(a, http.StatusServiceUnavailable, "no endpoint of the service is ready")
		return
	}
	if do.Limit > 0 {
		ctx, cancel := context.WithTimeoutCause(r.Context(), time.Duration(do.Limit)*time.Millisecond, errLate)
		defer cancel()
		r = r.WithContext(ctx)
	}
	x.forward(a, r)
}

// choose takes one backend by chance and weight; nil: none has any.
func choose(list []route.Backend) *route.Backend {
	total := 0
	for i := range list {
		total += list[i].Weight
	}
	if total == 0 {
		return nil
	}
	n := rand.IntN(total)
	for i := range list {
		if n -= list[i].Weight; n < 0 {
			return &list[i]
		}
	}
	return nil
}

// asksFirst answers a browser that asks whether it may send a request.
func (x *exchange) asksFirst(a *answer, r *http.Request, c *route.CORS) bool {
	wanted := r.Header.Get("Access-Control-Request-Method")
	if r.Method != http.MethodOptions || x.origin == "" || wanted == "" {
		return false
	}
	h := a.Header()
	allow(h, c, x.origin)
	if h.Get("Access-Control-Allow-Origin") != "" {
		methods, headers := c.Methods, c.Headers
		if methods == "*" && c.Credentials { // to a browser it is then a name like others
			methods = wanted
		}
		if asked := r.Header.Get("Access-Control-Request-Headers"); headers == "*" && c.Credentials {
			headers = asked
		}
		for name, value := range map[string]string{"Access-Control-Allow-Methods": methods, "Access-Control-Allow-Headers": headers} {
			if value != "" {
				h.Set(name, value)
			}
		}
		h.Set("Access-Control-Max-Age", strconv.Itoa(c.MaxAge))
	}
	h.Set("Content-Length", "0")
	a.WriteHeader(http.StatusNoContent)
	return true
}

// elsewhere is where a rule sends a request.
func (x *exchange) elsewhere(to *route.RedirectTo, r *http.Request) string {
	scheme, host, port := scheme(r), x.host, x.door.Public
	switch {
	case to.Port != 0:
		port = to.Port
	case to.Scheme == "https":
		port = 443
	case to.Scheme == "http":
		port = 80
	}
	if to.Scheme != "" {
		scheme = to.Scheme
	}
	if to.Host != "" {
		host = to.Host
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if !(scheme == "http" && port == 80 || scheme == "https" && port == 443) {
		host += ":" + strconv.Itoa(int(port))
	}
	u := *r.URL
	if to.Path != nil {
		u.Path, u.RawPath = to.Path.Of(x.path, x.target), ""
	}
	u.Scheme, u.Host, u.User = scheme, host, nil
	return u.String()
}

// changeRequest does to what is sent what the rule and the backend want.
func (x *exchange) changeRequest(p *httputil.ProxyRequest) {
	do, out := x.target.Action, p.Out
	changeHeader(out.Header, do.Request)
	for _, w := range []*route.Rewrite{do.Rewrite, x.backend.Rewrite} {
		if w == nil {
			continue
		}
		if w.Host != "" {
			out.Host = w.Host
		}
		if w.Path != nil {
			out.URL.Path, out.URL.RawPath = w.Path.Of(x.path, x.target), ""
		}
	}
	x.copy(out)
	changeHeader(out.Header, x.backend.Request)
}

// changeHeader sets, adds and removes headers.
func changeHeader(h http.Header, c *route.HeaderChange) {
	if c == nil {
		return
	}
	for _, one := range c.Set {
		h.Set(one.Name, one.Value)
	}
	for _, one := range c.Add {
		h.Add(one.Name, one.Value)
	}
	for _, name := range c.Remove {
		h.Del(name)
	}
}

const (
	// mostCopies is how many copies of requests are on their way at once; more are not made.
	mostCopies = 256
	// copyPatience is how long one may take, and copyBody how large its body may be.
	copyPatience = 10 * time.Second
	copyBody     = 1 << 20
)

// copied is a copy of a request.
type copied struct {
	r *http.Request
	t *http.Transport
}

// copy sends copies to those that want one, of requests whose bodies are not large. Nobody waits for what
// becomes of them.
func (x *exchange) copy(out *http.Request) {
	var wanted []copied
	for i := range x.target.Action.Mirrors {
		m := &x.target.Action.Mirrors[i]
		if m.Of <= 0 || rand.IntN(m.Of) >= m.Part {
			continue
		}
		one := x.s.pools[m.Upstream].pick(time.Since(x.e.began), "", nil)
		if one == nil {
			continue
		}
		r := out.Clone(context.WithoutCancel(out.Context()))
		r.URL.Scheme, r.URL.Host, r.Body, r.ContentLength = spoken(m.Protocol), one.address, nil, 0
		wanted = append(wanted, copied{r, x.transportFor(m.Protocol, m.Trust)})
	}
	if len(wanted) == 0 {
		return
	}
	body, whole := hold(out)
	if !whole {
		return
	}
	for _, c := range wanted {
		if len(body) > 0 {
			c.r.Body, c.r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		}
		select {
		case x.e.copies <- c:
		default: // there are too many already
		}
	}
}

// hold reads the body of a request, which still has it afterwards; whole is false if it is too large.
func hold(r *http.Request) (body []byte, whole bool) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, true
	}
	from := r.Body
	body, err := io.ReadAll(io.LimitReader(from, copyBody+1))
	rest := io.Reader(from)
	if err != nil {
		rest = failing{err}
	}
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(body), rest), from}
	return body, err == nil && len(body) <= copyBody
}

// failing is a reader that has failed.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// sendCopies sends copies until ctx ends.
func (e *Edge) sendCopies(ctx context.Context) error {
	g := task.NewGroup(ctx)
	turns := make(chan struct{}, mostCopies)
	for {
		select {
		case <-ctx.Done():
			return g.Wait()
		case c := <-e.copies:
			select {
			case turns <- struct{}{}:
			default:
				continue
			}
			g.Go("copy", func(ctx context.Context) error {
				defer func() { <-turns }()
				ctx, cancel := context.WithTimeout(ctx, copyPatience)
				defer cancel()
				if res, err := c.t.RoundTrip(c.r.WithContext(ctx)); err == nil {
					_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, copyBody)) // what is answered is nothing to anybody
					res.Body.Close()
				}
				return nil
			})
		}
	}
}

// pickStream connects to an endpoint of a backend, for what is not HTTP.
func (x *exchange) pickStream(ctx context.Context) (net.Conn, error) {
	var tried []*endpoint
	last := errNobody
	for range defaultTries {
		now := time.Since(x.e.began)
		one := x.pool.pick(now, x.wanted, tried)
		if one == nil {
			break
		}
		conn, err := dial(ctx, "tcp", one.address)
		if err == nil {
			one.reached()
			x.took = one
			return conn, nil
		}
		last = err
		one.missed(now)
		tried = append(tried, one)
	}
	return nil, last
}
