package https

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/task"
)

// answer is what a server said: a success.
type answer struct {
	kind   string // media type
	body   []byte
	header http.Header
}

// How often a request is sent again: after a broken connection, and when the
// server asks to come back.
const (
	maxBroken  = 3
	maxRetries = 10
)

// ask sends a call until it is answered or there is no use in it.
func (t *Transport) ask(ctx context.Context, c *call) (*answer, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, t.o.RequestTimeout, errTime)
	defer cancel()
	backoff := task.Backoff{Initial: t.o.Backoff, Max: 10 * t.o.Backoff, Jitter: 1}
	broken := 0
	for try := 0; ; try++ {
		a, err := t.once(ctx, c)
		if err == nil {
			return a, nil
		}
		wait, again := retryAfter(err)
		if !again && mayRepeat(c, err) && broken < maxBroken {
			broken++
			wait, again = backoff.Next(), true
		}
		if !again || try >= maxRetries || outOfTime(ctx, wait) || task.Sleep(ctx, wait) != nil {
			return nil, plain(err)
		}
	}
}

// errTime is why a request that took too long ended.
var errTime = fmt.Errorf("the API server did not answer in time: %w", context.DeadlineExceeded)

func outOfTime(ctx context.Context, wait time.Duration) bool {
	end, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && time.Until(end) <= wait
}

// once sends a call and reads the answer.
func (t *Transport) once(ctx context.Context, c *call) (*answer, error) {
	r, err := t.send(ctx, c)
	if err != nil {
		return nil, err
	}
	defer r.close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, &linkError{what: c.String(), err: causeOf(r.ctx, err)}
	}
	return &answer{kind: mediaType(r.Header), body: body, header: r.Header}, nil
}

// reply is the answer to an attempt, a success, whose body is to be read before it is closed.
type reply struct {
	*http.Response
	*attempt
}

func (r reply) close() {
	_ = r.Body.Close() // it has been read, or nobody wants the rest
	r.end(nil)
}

// send sends a call to the server that is in use, and goes on to the next one where that
// does nothing twice (H4).
func (t *Transport) send(ctx context.Context, c *call) (reply, error) {
	for left := t.servers.count(); ; left-- {
		a := t.servers.begin(ctx)
		res, err := t.sendTo(a, c)
		if err == nil {
			t.servers.worked(a.at)
			return reply{res, a}, nil
		}
		a.end(nil)
		if again := t.fault(ctx, a, c, err); !again || left <= 1 {
			return reply{}, err
		}
	}
}

func (t *Transport) sendTo(a *attempt, c *call) (*http.Response, error) {
	shown, err := t.o.Plugin.get(a.ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: getting credentials: %w", c, err)
	}
	by, err := t.client(shown)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c, err)
	}
	connected := false // what a connection did not take is sent over another one by package net/http
	ctx := httptrace.WithClientTrace(a.ctx, &httptrace.ClientTrace{
		GetConn: func(string) { connected = false },
		GotConn: func(httptrace.GotConnInfo) { connected = true },
	})
	req, err := t.request(ctx, a.at.server, c)
	if err != nil {
		return nil, err
	}
	if shown != nil && shown.token != "" && t.token == nil {
		req.Header.Set("Authorization", "Bearer "+shown.token)
	}
	began := time.Now()
	res, err := by.Do(req)
	t.metrics.answered(req, res, began)
	if err != nil {
		return nil, &linkError{what: c.String(), unsent: !connected, err: causeOf(a.ctx, err)}
	}
	if res.StatusCode >= 200 && res.StatusCode < 300 {
		return res, nil
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusUnauthorized {
		t.o.Plugin.refused(shown)
	}
	return nil, refusal(c, res)
}

// fault notes what an error says of the server that was asked, and reports whether the call
// can be sent to the next one at once.
func (t *Transport) fault(ctx context.Context, a *attempt, c *call, err error) (again bool) {
	var link *linkError
	var no *refused
	switch {
	case ctx.Err() != nil:
		return false
	case errors.As(err, &link):
		if link.unsent && !errors.Is(err, errLeft) {
			t.servers.failed(a.at, 0)
		}
		return link.unsent || c.safe() && errors.Is(err, errLeft)
	case !errors.As(err, &no):
		return false
	case no.ErrStatus.Code == http.StatusServiceUnavailable && no.retry >= 0,
		c.known && apierrors.HasStatusCause(no.StatusError, metav1.CauseTypeResourceVersionTooLarge):
		t.servers.failed(a.at, max(no.retry, 0))
		return true
	case no.ErrStatus.Code >= http.StatusInternalServerError:
		t.servers.doubt(a.at)
	}
	return false
}

// client returns what to send by: another one, with connections of its own, when there is
// another client certificate, that of a plugin if there is one, or another authority.
func (t *Transport) client(shown *credential) (_ *http.Client, err error) {
	var cert *tls.Certificate
	var roots *x509.CertPool
	switch {
	case shown != nil:
		cert = shown.cert
	case t.o.Certificate != nil:
		if cert, err = t.o.Certificate(); err != nil {
			return nil, err
		}
	case t.roots == nil:
		return t.mu.http, nil
	}
	if t.roots != nil {
		if roots, err = t.roots(); err != nil {
			return nil, err
		}
	}
	var old []*tracked
	t.mu.Lock()
	if t.mu.shown != nil && t.mu.shown != cert || roots != t.mu.roots {
		t.mu.roots = roots
		old, t.mu.http = t.conns.take(), t.newHTTP()
	}
	t.mu.shown = cert
	h := t.mu.http
	t.mu.Unlock()
	closeAll(old)
	return h, nil
}

// linkError says that the server could not be reached, or the connection broke
// before the answer was complete.
type linkError struct {
	what   string
	unsent bool // there was no connection that it could have been sent over
	err    error
}

func (e *linkError) Error() string { return e.what + ": " + e.err.Error() }
func (e *linkError) Unwrap() error { return e.err }

// causeOf is why ctx ended if that is why there is an error.
func causeOf(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// mayRepeat reports whether a call whose connection broke can be sent again
// without doing anything twice (H4).
func mayRepeat(c *call, err error) bool {
	var broken *linkError
	return errors.As(err, &broken) && (c.safe() || broken.unsent)
}

// maxRefusal bounds the answer that is read when a request was refused.
const maxRefusal = 3 << 20

// refusal is the server's error: the same one as within the server's process.
func refusal(c *call, res *http.Response) error {
	seconds, err := strconv.Atoi(res.Header.Get("Retry-After"))
	asked := err == nil && seconds >= 0
	body, err := io.ReadAll(io.LimitReader(res.Body, maxRefusal))
	if err != nil {
		return &linkError{what: c.String(), err: err}
	}
	out := &refused{retry: -1, StatusError: statusError(&answer{kind: mediaType(res.Header), body: body})}
	final := out.StatusError != nil && answers(&out.ErrStatus)
	if out.StatusError == nil {
		out.StatusError = apierrors.NewGenericServerResponse(res.StatusCode, c.verb, c.gr, c.name, string(body), max(seconds, 0), true)
	}
	if asked && (res.StatusCode == http.StatusTooManyRequests || res.StatusCode == http.StatusServiceUnavailable) && !final {
		out.retry = time.Duration(seconds) * time.Second
	}
	return out
}

// answers reports that "too many requests" is about the object that was asked
// for (an eviction that a budget forbids), and not about the server's load.
func answers(s *metav1.Status) bool { return s.Details != nil && len(s.Details.Causes) > 0 }

// refused is an API error with what the server said of coming back.
type refused struct {
	*apierrors.StatusError
	retry time.Duration // negative: it said nothing
}

// plain is an error as callers know it.
func plain(err error) error {
	var r *refused
	if errors.As(err, &r) {
		return r.StatusError
	}
	return err
}

// retryAfter is when the server wants the request to be sent again.
func retryAfter(err error) (time.Duration, bool) {
	var r *refused
	if errors.As(err, &r) && r.retry >= 0 {
		return r.retry, true
	}
	return 0, false
}

// statusError is the Status in an answer; nil if there is none.
func statusError(a *answer) *apierrors.StatusError {
	obj, err := a.status()
	if err != nil || obj.Status == metav1.StatusSuccess {
		return nil
	}
	return &apierrors.StatusError{ErrStatus: *obj}
}
