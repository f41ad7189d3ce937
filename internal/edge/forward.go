package edge

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kemudi/kemudi/internal/edge/lines"
	"github.com/kemudi/kemudi/internal/edge/route"
)

// What an endpoint may take its time for, unless the site says otherwise.
const (
	connectTimeout = 5 * time.Second
	readTimeout    = 60 * time.Second
	streamTimeout  = time.Hour // calls of gRPC may have nothing to say
	defaultTries   = 3
	idleUpstream   = 60 * time.Second
	idlePerAddress = 64 // connections that are kept

	maxAnswerHeader = 256 << 10 // bytes
)

// forward has a transport for each protocol. Connections are kept by address.
type forward struct {
	plain      *lines.Sender // by HTTP/1.1 without TLS, of what is not unusual
	transports map[route.Protocol]*http.Transport
	elsewhere  *http.Transport // outside the cluster, to who says what may pass
	trusted    *trusted        // to backends that are known by certificates
	buffers    *buffers
}

func newForward() forward {
	f := forward{
		plain:      &lines.Sender{Dial: dial, Idle: idleUpstream, Most: idlePerAddress, Header: maxAnswerHeader},
		transports: map[route.Protocol]*http.Transport{}, elsewhere: newElsewhere(), trusted: &trusted{}, buffers: &buffers{},
	}
	for _, p := range []route.Protocol{route.HTTP, route.HTTPS, route.GRPC, route.GRPCS} {
		t := newTransport(p)
		if p == route.HTTPS || p == route.GRPCS {
			t.TLSClientConfig = &tls.Config{InsecureSkipVerify: true} // the addresses of pods are in no certificate
		}
		f.transports[p] = t
	}
	return f
}

// newTransport is one to upstreams, without what is believed of them.
func newTransport(p route.Protocol) *http.Transport {
	t := &http.Transport{
		DialContext: dial, DisableCompression: true, MaxIdleConnsPerHost: idlePerAddress, IdleConnTimeout: idleUpstream,
		TLSHandshakeTimeout: 2 * connectTimeout, MaxResponseHeaderBytes: maxAnswerHeader, Protocols: &http.Protocols{},
	}
	switch p {
	case route.HTTP, route.HTTPS:
		t.Protocols.SetHTTP1(true)
	case route.GRPC:
		t.Protocols.SetUnencryptedHTTP2(true)
	case route.GRPCS:
		t.Protocols.SetHTTP2(true)
	}
	return t
}

func (f *forward) close() {
	f.plain.Close()
	for _, t := range f.transports {
		t.CloseIdleConnections()
	}
	f.elsewhere.CloseIdleConnections()
	f.trusted.keep(nil)
}

// dialTimeout is the key of a site's own time-out in a context.
type dialTimeout struct{}

func dial(ctx context.Context, network, address string) (net.Conn, error) {
	limit, ok := ctx.Value(dialTimeout{}).(time.Duration)
	if !ok {
		limit = connectTimeout
	}
	return (&net.Dialer{Timeout: limit}).DialContext(ctx, network, address)
}

// buffers lends memory for bodies on their way.
type buffers struct{ pool sync.Pool }

const bufferSize = 32 << 10

func (b *buffers) Get() []byte {
	if p, ok := b.pool.Get().(*[]byte); ok {
		return *p
	}
	return make([]byte, bufferSize)
}

func (b *buffers) Put(p []byte) { b.pool.Put(&p) }

// forward sends a request to an endpoint and its answer back.
func (x *exchange) forward(a *answer, r *http.Request) {
	if r.Body != nil && r.Body != http.NoBody && r.ContentLength != 0 {
		r.Body = &upload{body: body{from: r.Body, a: a}, Closer: r.Body}
	}
	if c := x.o.Connect; c > 0 {
		r = r.WithContext(context.WithValue(r.Context(), dialTimeout{}, time.Duration(c)*time.Millisecond))
	}
	p := httputil.ReverseProxy{
		Rewrite: x.rewrite, Transport: x, ModifyResponse: x.answered, BufferPool: x.e.forward.buffers,
		ErrorLog: x.e.errors,
		ErrorHandler: func(_ http.ResponseWriter, r *http.Request, err error) {
			x.failed(a, r, err)
		},
	}
	p.ServeHTTP(a, r)
}

// upload is a body that is not closed by an attempt which has sent nothing of it.
type upload struct {
	body
	io.Closer
}

func (u *upload) Close() error {
	if !u.read {
		return nil // the server closes it when the request is over
	}
	return u.Closer.Close()
}

// rewrite makes what is sent of what has come (E3, E4).
func (x *exchange) rewrite(p *httputil.ProxyRequest) {
	out := p.Out
	out.URL.Scheme = spoken(x.protocol)
	out.URL.RawQuery = p.In.URL.RawQuery // as it came, though it may be no query that Go can read
	out.Host = p.In.Host
	if x.o.Host != "" {
		out.Host = x.o.Host
	}
	if x.o.Rewrite != "" {
		x.rewritePath(out.URL)
	}
	h := out.Header
	// It would have the header grow, which costs more than all of it.
	if x.seen = x.vouch(h, p.In); !x.apart() {
		put(h, x.seen)
		x.seen = nil
	}
	if x.o.Auth != nil {
		for _, name := range x.o.Auth.Headers { // who was asked has said them, and not the client
			if values := p.In.Header.Values(name); len(values) > 0 {
				h[http.CanonicalHeaderKey(name)] = values
			}
		}
	}
	if x.o.Prefix != "" {
		h["X-Forwarded-Prefix"] = []string{x.o.Prefix}
	}
	if _, said := h["User-Agent"]; !said {
		h["User-Agent"] = nil // nothing is said in the client's place
	}
	if x.backend != nil {
		x.changeRequest(p)
	}
}

// spoken is the scheme of addresses that speak a protocol.
func spoken(p route.Protocol) string {
	if p == route.HTTPS || p == route.GRPCS {
		return "https"
	}
	return "http"
}

// vouch takes away what a client says of where it comes from, and returns what is seen of it (E3).
func (x *exchange) vouch(h http.Header, r *http.Request) []lines.Field {
	client := x.client.String()
	port := x.e.ports.wanted().HTTP
	switch {
	case x.door != nil:
		port = x.door.Public
	case r.TLS != nil:
		port = x.e.ports.wanted().HTTPS
	}
	for name := range h {
		// Programs behind gateways of old read X_Real_IP as X-Real-IP.
		if strings.IndexByte(name, '_') >= 0 || ownHeaders[name] {
			delete(h, name)
		}
	}
	spoken := scheme(r)
	seen := append(make([]lines.Field, 0, 8),
		lines.Field{Name: "X-Forwarded-For", Value: client}, lines.Field{Name: "X-Real-Ip", Value: client},
		lines.Field{Name: "X-Forwarded-Host", Value: r.Host},
		lines.Field{Name: "X-Forwarded-Proto", Value: spoken}, lines.Field{Name: "X-Forwarded-Scheme", Value: spoken}, lines.Field{Name: "X-Scheme", Value: spoken},
		lines.Field{Name: "X-Forwarded-Port", Value: strconv.Itoa(int(port))})
	if id := h["X-Request-Id"]; len(id) != 1 || !plausibleID(id[0]) {
		delete(h, "X-Request-Id")
		seen = append(seen, lines.Field{Name: "X-Request-Id", Value: newID()})
	}
	if x.shown != nil {
		x.shown.tell(h, x.target.Proof.Pass)
	}
	return seen
}

// put makes fields part of a header; their values are one piece of memory.
func put(h http.Header, fields []lines.Field) {
	values := make([]string, len(fields))
	for i, f := range fields {
		values[i] = f.Value
		h[f.Name] = values[i : i+1 : i+1]
	}
}

// apart says that nothing looks at what a request says of its client, or changes it, before it is sent.
func (x *exchange) apart() bool {
	if x.backend == nil {
		return x.o.Auth == nil
	}
	do := x.target.Action
	return do.Request == nil && x.backend.Request == nil && len(do.Mirrors) == 0
}

func scheme(r *http.Request) string {
	if r.TLS != nil {
		return "https"
	}
	return "http"
}

// ownHeaders are those that programs believe when they come from a proxy, and that no client is
// to say.
var ownHeaders = map[string]bool{
	"X-Forwarded-For": true, "X-Real-Ip": true, "X-Forwarded-Host": true, "X-Forwarded-Proto": true, "X-Forwarded-Scheme": true, "X-Scheme": true, "X-Forwarded-Port": true,
	"X-Forwarded-Prefix": true, "X-Forwarded-Server": true, "X-Forwarded-Uri": true, "X-Forwarded-Ssl": true, "X-Forwarded-User": true, "X-Original-Url": true, "X-Original-Host": true, "X-Original-Method": true,
	"X-Original-Forwarded-For": true, "X-Rewrite-Url": true, "X-Client-Ip": true, "X-Cluster-Client-Ip": true, "True-Client-Ip": true, "Front-End-Https": true, "X-Auth-Request-Redirect": true, "Proxy": true,
	"Ssl-Client-Cert": true, "Ssl-Client-Verify": true, "Ssl-Client-Subject-Dn": true, "Ssl-Client-Issuer-Dn": true,
}

// rewritePath puts what the rule's expression has found into the path that is asked for.
func (x *exchange) rewritePath(u *url.URL) {
	to, query, asks := strings.Cut(x.o.Rewrite, "?")
	if re := x.target.Pattern; re != nil {
		if m := re.FindStringSubmatchIndex(x.path); m != nil {
			expand := func(text string) string { return string(re.ExpandString(nil, groups.Replace(text), x.path, m)) }
			to, query = expand(to), expand(query)
		}
	}
	if !strings.HasPrefix(to, "/") {
		to = "/" + to
	}
	u.Path, u.RawPath = to, ""
	if asks {
		if u.RawQuery != "" {
			query += "&" + u.RawQuery
		}
		u.RawQuery = query
	}
}

// groups makes $1a, which is a group and a letter, what it is to package regexp.
var groups = strings.NewReplacer("$1", "${1}", "$2", "${2}", "$3", "${3}", "$4", "${4}", "$5", "${5}", "$6", "${6}", "$7", "${7}", "$8", "${8}", "$9", "${9}", "$", "$$")

func newID() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // it never fails
	var text [2 * len(id)]byte
	hex.Encode(text[:], id[:])
	return string(text[:])
}

// plausibleID says that a client's own number of a request may stand in logs.
func plausibleID(id string) bool {
	const longest = 128
	if id == "" || len(id) > longest {
		return false
	}
	for i := range len(id) {
		if c := id[i]; c <= ' ' || c >= 0x7f || c == '"' {
			return false
		}
	}
	return true
}

var (
	errNobody = errors.New("no endpoint is left to try")
	errStatus = errors.New("the endpoint answers with a status that is none")
)

// RoundTrip sends a request to one endpoint, and to another one as long as nothing of it has
// been sent (E2), or as its rule wants it to be sent again.
func (x *exchange) RoundTrip(r *http.Request) (*http.Response, error) {
	limit := readTimeout
	if x.o.Read > 0 {
		limit = time.Duration(x.o.Read) * time.Millisecond
	}
	if x.protocol == route.GRPC || x.protocol == route.GRPCS {
		limit = max(limit, streamTimeout)
	}
	if x.backend != nil && x.target.Action.Attempt > 0 {
		limit = time.Duration(x.target.Action.Attempt) * time.Millisecond
	}
	tries := defaultTries
	if x.o.Tries > 0 {
		tries = x.o.Tries
	}
	var more *again
	if x.backend != nil {
		if more = againFor(x.target.Action, r); more != nil {
			tries = 1 + more.rule.Attempts
		}
	}
	var tried []*endpoint
	last := errNobody
	for n := range tries {
		if n > 0 {
			x.e.metrics.again.Inc()
			if err := more.wait(r.Context()); err != nil {
				return nil, err
			}
		}
		now := time.Since(x.e.began)
		one := x.pool.pick(now, x.wanted, tried)
		if one == nil && more != nil && len(tried) > 0 {
			tried = nil // all have been asked: they are asked again
			one = x.pool.pick(now, x.wanted, nil)
		}
		if one == nil {
			break
		}
		more.ready(r)
		res, err := x.attempt(r, one, limit)
		switch {
		case err == nil:
			one.reached()
			if n+1 == tries || !more.answered(res) {
				x.took = one
				return res, nil
			}
		case r.Context().Err() != nil, !unsent(err) && !more.silent(r, err):
			return nil, err
		case unsent(err):
			if u, ok := r.Body.(*upload); ok && u.read {
				return nil, err
			}
			one.missed(now)
		}
		last = cmp.Or(err, last)
		tried = append(tried, one)
	}
	return nil, last
}

// unsent says that an attempt has not got as far as a connection.
func unsent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// attempt sends a request to one endpoint. Neither the beginning of the answer nor any
// further part of it may take longer than limit.
func (x *exchange) attempt(r *http.Request, one *endpoint, limit time.Duration) (*http.Response, error) {
	if x.protocol == route.HTTP && x.draining == nil && (x.backend == nil || x.backend.Trust == nil) {
		res, err := x.e.forward.plain.Send(r, one.address, limit, x.seen...)
		if !errors.Is(err, lines.ErrUnusual) {
			return res, err
		}
	}
	put(r.Header, x.seen)
	x.seen = nil
	ctx, cancel := context.WithCancelCause(r.Context())
	out := r.WithContext(ctx)
	to := *r.URL
	to.Host = one.address
	out.URL = &to
	timer := time.AfterFunc(limit, func() { cancel(lines.ErrSilent) })
	x.drainedWith(ctx, one, cancel)
	res, err := x.transport().RoundTrip(out)
	if err != nil {
		timer.Stop()
		if errors.Is(context.Cause(ctx), lines.ErrSilent) {
			err = lines.ErrSilent
		}
		cancel(err)
		return nil, err
	}
	if res.StatusCode == http.StatusSwitchingProtocols {
		timer.Stop() // who has another protocol has its own ideas of silence
		return res, nil
	}
	res.Body = &download{ReadCloser: res.Body, timer: timer, limit: limit, cancel: cancel, last: time.Now()}
	return res, nil
}

// download is what an endpoint answers. One that falls silent is not waited for.
type download struct {
	io.ReadCloser
	timer  *time.Timer
	limit  time.Duration
	last   time.Time // when the timer was set
	cancel context.CancelCauseFunc
}

func (d *download) Read(p []byte) (int, error) {
	if now := time.Now(); now.Sub(d.last) > d.limit/16 {
		d.last = now
		d.timer.Reset(d.limit)
	}
	return d.ReadCloser.Read(p)
}

func (d *download) Close() error {
	d.timer.Stop()
	err := d.ReadCloser.Close()
	d.cancel(context.Canceled)
	return err
}

// answered notes what goes back to the client.
func (x *exchange) answered(res *http.Response) error {
	if res.StatusCode < http.StatusContinue { // no server can send it on
		return errStatus
	}
	if res.StatusCode == http.StatusSwitchingProtocols {
		x.a.status, x.a.hijacked = res.StatusCode, true
	}
	x.remember(res.Header)
	if x.backend != nil {
		changeHeader(res.Header, x.backend.Response)
		changeHeader(res.Header, x.target.Action.Response)
		if c := x.target.Action.CORS; c != nil && x.origin != "" {
			allow(res.Header, c, x.origin)
		}
	}
	if res.StatusCode < http.StatusBadRequest {
		for _, c := range x.cookies {
			res.Header.Add("Set-Cookie", c)
		}
	}
	if x.o.CORS != nil && x.origin != "" {
		allow(res.Header, x.o.CORS, x.origin)
	}
	return nil
}

// closedRequest is what is counted where a client has gone before there was an answer.
const closedRequest = 499

// failed answers for an endpoint that has not.
func (x *exchange) failed(a *answer, r *http.Request, err error) {
	var large *http.MaxBytesError
	var silent net.Error
	switch {
	case errors.As(err, &large):
		x.e.refuse(a, "body", http.StatusRequestEntityTooLarge)
	case errors.Is(context.Cause(r.Context()), errLate):
		x.e.answer(a, http.StatusGatewayTimeout, "the request has taken too long")
	case r.Context().Err() != nil:
		a.status = closedRequest
	case errors.Is(err, os.ErrDeadlineExceeded) && !unsent(err):
		x.e.refuse(a, "slow", http.StatusRequestTimeout)
	case errors.Is(err, lines.ErrSilent), errors.As(err, &silent) && silent.Timeout():
		x.e.answer(a, http.StatusGatewayTimeout, "the service has not answered in time")
	default:
		x.e.o.Log.Debug("service cannot be reached", "ingress", x.target.Site.Key, "upstream", x.upstream, "err", err)
		x.e.answer(a, http.StatusBadGateway, "the service cannot be reached")
	}
}
