package edge

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/kemudi/kemudi/internal/edge/lines"
	"github.com/kemudi/kemudi/internal/edge/route"
	"github.com/kemudi/kemudi/internal/task"
)

// ServeHTTP takes one request to an endpoint, or answers it: what cannot be read in one way
// only is refused, then the rule is found, then what its site says is obeyed, then it is forwarded.
func (e *Edge) ServeHTTP(w http.ResponseWriter, r *http.Request) { e.serve(w, r, 0) }

// serve is ServeHTTP for what came through a door, by its port; 0: through the ports of Ingresses.
func (e *Edge) serve(w http.ResponseWriter, r *http.Request, through uint16) {
	deepen(0)
	a := newAnswer(w, r)
	defer func() { e.finish(a) }()
	s := e.state.Load()
	host, ok := route.Canonical(r.Host)
	path, clean := route.Clean(r.URL.Path)
	switch {
	case r.Method == http.MethodConnect:
		e.refuse(a, "connect", http.StatusMethodNotAllowed)
		return
	case !ok:
		e.refuse(a, "host", http.StatusBadRequest)
		return
	case !clean: // E4
		e.refuse(a, "path", http.StatusBadRequest)
		return
	}
	x := &exchange{e: e, a: a, s: s, host: host, path: path, client: clientOf(r.RemoteAddr)}
	if through != 0 {
		x.enterDoor(a, r, through)
		return
	}
	if r.TLS == nil && e.vouches(a, path, s.table.Account(host)) {
		return
	}
	x.target = s.table.Find(host, path, nil)
	if x.target == nil {
		e.answer(a, http.StatusNotFound, "default backend - 404")
		return
	}
	x.o = x.target.Site.Options
	if x.o == nil {
		x.o = &noOptions
	}
	x.protocol = x.o.Protocol
	if x.secured(a, r) || !x.proved(a, r) || x.redirected(a) || !x.admitted(a, r) || x.preflight(a, r) {
		return
	}
	defer x.leave()
	if !x.enter(a) || !x.loggedIn(a, r) || !x.allowed(a, r) {
		return
	}
	x.recall(r)
	x.origin = r.Header.Get("Origin")
	x.upstream = divert(x.target, r)
	x.pool = s.pools[x.upstream]
	if x.pool == nil || len(x.pool.endpoints) == 0 {
		e.answer(a, http.StatusServiceUnavailable, "no endpoint of the service is ready")
		return
	}
	x.forward(a, r)
}

// deepen has the goroutine's stack grow to what a request takes of it, by the size of its own frame: by HTTP/2 each request
// has a new goroutine, whose stack would grow where it is deep, in steps, and each time be copied frame by frame.
//
//go:noinline
func deepen(at int) byte {
	if at == 0 {
		return 0 // the frame is there all the same, and nothing has cleared it
	}
	var frame [6 << 10]byte
	frame[at]++
	return frame[at/2]
}

var noOptions route.Options

// exchange is one request on its way.
type exchange struct {
	e        *Edge
	a        *answer
	s        *state
	target   *route.Target
	o        *route.Options
	upstream string // that gets the request: of the target, or of one of its canaries
	pool     *pool
	host     string // that was asked for, canonical
	path     string // clean
	client   netip.Addr
	protocol route.Protocol // that the upstream speaks
	door     *door          // through which the request came; nil: a port of Ingresses
	backend  *route.Backend // of the target's action that gets the request; nil: the target has none

	took     *endpoint   // that has answered
	draining *task.Group // of who watches endpoints that go; nil: nobody does
	wanted   string      // token of the endpoint that the client's cookie names
	origin   string      // of the page that asks; empty: none
	usage    *usage      // in which the request is counted; nil: it is not
	shown    *shown      // what is known of a client that shows certificates; nil: nobody asks
	cookies  []string    // that the answer sets for who was asked whether it may pass

	seen []lines.Field // of the client, which the request has beside its header
}

func clientOf(remote string) netip.Addr {
	at, _ := netip.ParseAddrPort(remote)
	return at.Addr().Unmap()
}

// secured sends a client that speaks no TLS to where it is spoken, if the site wants that.
func (x *exchange) secured(a *answer, r *http.Request) bool {
	if r.TLS != nil || !x.o.Secure && (!x.target.Secure || x.o.PlainToo) {
		return false
	}
	host := x.host
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if port := x.e.ports.wanted().HTTPS; port != 0 && port != 443 {
		host += ":" + strconv.Itoa(int(port))
	}
	x.redirect(a, "https://"+host+r.URL.RequestURI(), http.StatusPermanentRedirect)
	return true
}

// redirected sends a client elsewhere, if the site wants that.
func (x *exchange) redirected(a *answer) bool {
	switch o := x.o; {
	case o.Redirect != nil:
		x.redirect(a, o.Redirect.To, o.Redirect.Code)
	case o.Root != "" && x.path == "/":
		x.redirect(a, o.Root, http.StatusFound)
	default:
		return false
	}
	return true
}

func (x *exchange) redirect(a *answer, to string, code int) {
	a.Header().Set("Location", to)
	x.e.answer(a, code, http.StatusText(code))
}

// admitted says whether a site takes the request; if not, it has been answered.
func (x *exchange) admitted(a *answer, r *http.Request) bool {
	o := x.o
	if len(o.Deny) > 0 && within(o.Deny, x.client) || len(o.Allow) > 0 && !within(o.Allow, x.client) {
		x.e.refuse(a, "address", http.StatusForbidden)
		return false
	}
	if o.MaxBody > 0 {
		if r.ContentLength > o.MaxBody {
			x.e.refuse(a, "body", http.StatusRequestEntityTooLarge)
			return false
		}
		r.Body = http.MaxBytesReader(a, r.Body, o.MaxBody)
	}
	return true
}

func within(list []netip.Prefix, a netip.Addr) bool {
	for _, p := range list {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// refuse answers a request that no site is asked about, and counts it.
func (e *Edge) refuse(a *answer, reason string, code int) {
	e.metrics.refused.WithLabelValues(reason).Inc()
	e.answer(a, code, http.StatusText(code))
}

// answer answers with a few words.
func (e *Edge) answer(a *answer, code int, text string) {
	h := a.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Length", strconv.Itoa(len(text)+1))
	a.WriteHeader(code)
	_, _ = a.Write([]byte(text + "\n"))
}

// finish counts an answer.
func (e *Edge) finish(a *answer) {
	class := a.status / 100
	if class >= len(e.metrics.requests) {
		class = 0
	}
	e.metrics.requests[class].Inc()
	e.pace.request()
	now := time.Now()
	if a.status != http.StatusSwitchingProtocols {
		e.metrics.duration.Observe(now.Sub(a.began).Seconds())
	}
	if !a.hijacked {
		if a.unread.Load() { // the server waits for what is left of it before it answers (E5)
			_ = a.control.SetReadDeadline(now.Add(lingerTimeout))
		}
		a.extend(now) // for what is still buffered
	}
}

// body is what a client sends. Who sends nothing is not waited for (E5).
type body struct {
	from interface{ Read([]byte) (int, error) }
	a    *answer
	last time.Time // when time was given
	read bool      // something of it has been asked for
	over bool
}

// Read gives the client time, and takes it back at the end: the connection is watched then
// for the client's going away, which takes as long as the answer does.
func (b *body) Read(p []byte) (int, error) {
	b.read = true
	if now := time.Now(); now.Sub(b.last) > extendAfter {
		b.last = now
		_ = b.a.control.SetReadDeadline(now.Add(bodyTimeout))
	}
	n, err := b.from.Read(p)
	if err != nil && !b.over {
		b.over = true
		b.a.unread.Store(false)
		if errors.Is(err, net.ErrClosed) {
			return n, err
		}
		_ = b.a.control.SetReadDeadline(time.Time{})
	}
	return n, err
}
