package aggregate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/proxy"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/transport"
)

// Texts of answers that clients know.
const (
	textUnavailable = "service unavailable"
	textRedirect    = "the backend attempted to redirect this request, which is not permitted"
	textLoop        = "the request has come back to the server that handed it on: the service of its APIService leads to an API server of this cluster"
)

// Serve hands a request of a user on to the server that has a group-version, and answers.
func (a *Aggregator) Serve(w http.ResponseWriter, r *http.Request, gv schema.GroupVersion, by user.Info) {
	to := a.seen.Load().byGV[gv]
	switch {
	case to.remote == nil, !to.available: // G3
		http.Error(w, textUnavailable, http.StatusServiceUnavailable)
		return
	case to.broken != nil:
		http.Error(w, to.broken.Error(), http.StatusInternalServerError)
		return
	case a.loops(r.Header): // G5
		http.Error(w, textLoop, http.StatusLoopDetected)
		return
	}
	if _, err := a.o.Services.Endpoints(to.port); err != nil {
		a.log.Debug("no endpoint of an aggregated API", "apiservice", to.name, "err", err)
		http.Error(w, textUnavailable, http.StatusServiceUnavailable)
		return
	}
	h := handing{a: a, to: to.remote, by: by, w: w}
	if isUpgrade(r) {
		h.upgrade(r)
		return
	}
	h.pass(r)
}

// handing is one request that is handed on.
type handing struct {
	a  *Aggregator
	to *remote
	by user.Info
	w  http.ResponseWriter
}

// pass hands on a request, and sends what is answered as it comes.
func (h *handing) pass(r *http.Request) {
	p := httputil.ReverseProxy{
		Transport: h.a.o.Tracing.Client(h.to.transport), FlushInterval: -1, ModifyResponse: h.answered, ErrorHandler: h.failed,
		ErrorLog: slog.NewLogLogger(h.a.log.Handler(), slog.LevelDebug),
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.Out.Header["X-Forwarded-For"] = pr.In.Header["X-Forwarded-For"]
			pr.SetXForwarded()
			h.address(pr.Out)
		},
	}
	p.ServeHTTP(h.w, r)
}

// address makes a request one to the other server, by the user: whatever the client says of who it is does
// not get there.
func (h *handing) address(r *http.Request) {
	at := h.to.url("")
	r.URL.Scheme, r.URL.Host, r.Host = at.Scheme, at.Host, at.Host
	r.Header.Del("Authorization")
	r.Header.Add("Via", h.a.via())
	if id := h.w.Header().Get("Audit-Id"); id != "" {
		r.Header.Set("Audit-Id", id)
	}
	transport.SetAuthProxyHeaders(r, h.by.GetName(), h.by.GetUID(), h.by.GetGroups(), h.by.GetExtra())
}

// answered looks at what the other server answers, before it is sent.
func (h *handing) answered(resp *http.Response) error {
	if resp.StatusCode >= 300 && resp.StatusCode <= 399 && resp.Header.Get("Location") != "" {
		_ = resp.Body.Close() // nobody reads it
		*resp = http.Response{
			StatusCode: http.StatusBadGateway, Proto: resp.Proto, ProtoMajor: resp.ProtoMajor, ProtoMinor: resp.ProtoMinor, Request: resp.Request,
			Header: http.Header{"Content-Type": {"text/plain; charset=utf-8"}},
			Body:   io.NopCloser(strings.NewReader(textRedirect)), ContentLength: int64(len(textRedirect)),
		}
		return nil
	}
	// Each is told once: the request has the same name here and there.
	resp.Header.Del("Audit-Id")
	if resp.Header.Get("Cache-Control") != "" {
		h.w.Header().Del("Cache-Control")
	}
	return nil
}

// failed answers for a server that has not.
func (h *handing) failed(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil && !errors.Is(r.Context().Err(), context.DeadlineExceeded) {
		return // the client has gone
	}
	code := http.StatusServiceUnavailable
	if errors.Is(err, context.DeadlineExceeded) {
		code = http.StatusGatewayTimeout
	}
	http.Error(w, fmt.Sprintf("error trying to reach service: %v", err), code)
}

// upgrade hands the connection of a request through to the other server: WebSocket, SPDY.
func (h *handing) upgrade(r *http.Request) {
	at := h.to.url(r.URL.Path)
	at.RawPath, at.RawQuery = r.URL.RawPath, r.URL.RawQuery
	out := r.Clone(r.Context())
	h.address(out)
	proxy.NewUpgradeAwareHandler(at, h.to.transport, false, true, refused{h}).ServeHTTP(h.w, out)
}

// refused answers for a connection that was not handed through.
type refused struct{ h *handing }

var _ proxy.ErrorResponder = refused{}

// Error answers with why it was not.
func (f refused) Error(w http.ResponseWriter, r *http.Request, err error) { f.h.failed(w, r, err) }

// isUpgrade reports whether the client asks for another protocol on its connection.
func isUpgrade(r *http.Request) bool {
	for _, value := range r.Header.Values("Connection") {
		for token := range strings.SplitSeq(value, ",") {
			if strings.EqualFold(strings.TrimSpace(token), "Upgrade") {
				return true
			}
		}
	}
	return false
}

// via is how requests that come through this process are marked.
func (a *Aggregator) via() string { return "1.1 kemudi-" + a.o.UID }

// loops reports whether a request has come through this process before.
func (a *Aggregator) loops(h http.Header) bool {
	for _, value := range h.Values("Via") {
		for hop := range strings.SplitSeq(value, ",") {
			if strings.HasSuffix(strings.TrimSpace(hop), " kemudi-"+a.o.UID) {
				return true
			}
		}
	}
	return false
}
