package apiserver

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/warning"

	"github.com/kemudi/kemudi/internal/apiserver/answer"
	"github.com/kemudi/kemudi/internal/apiserver/budget"
	"github.com/kemudi/kemudi/internal/apiserver/compress"
	"github.com/kemudi/kemudi/internal/apiserver/door"
	"github.com/kemudi/kemudi/internal/apiserver/refusal"
	"github.com/kemudi/kemudi/internal/apiserver/request"
	"github.com/kemudi/kemudi/internal/audit"
	"github.com/kemudi/kemudi/internal/obs/tracing"
)

// filters wraps next in all that happens to every HTTP request. They are
// listed in the order they run; a new one is added here.
func (s *Server) filters(next http.Handler) http.Handler {
	list := []func(http.Handler) http.Handler{
		s.withRequestInfo,                     // what the path says; the request's state
		s.withMetrics,                         // counts and times
		s.withPanicGuard,                      // a bug ends one request, not the process
		s.withDeadline,                        // for how long, all that follows included
		s.withServing,                         // what browsers and balancers are told
		s.withSettled,                         // not before that can be known
		s.seen("authentication", s.withAuthn), // who it is
		s.withTracing,                         // what it takes, where that is traced
		s.seen("audit", s.withAudit),          // what is told of it
		s.seen("constrainedimpersonation", s.withImpersonation), // whom they act for
		s.seen("authorization", s.withAuthz),                    // may they; who may not costs nothing more
		s.withBody,                                              // all that they say
		s.seen("priorityandfairness", s.withInflight),           // how much at a time
		s.withCompression,                                       // large lists
	}
	return wrap(list, next)
}

// wrap has the filters run in their order ahead of next.
func wrap(list []func(http.Handler) http.Handler, next http.Handler) http.Handler {
	for _, filter := range slices.Backward(list) {
		next = filter(next)
	}
	return next
}

// withServing is nothing where nothing was asked for.
func (s *Server) withServing(next http.Handler) http.Handler {
	return wrap(s.o.Serving.filters(), next)
}

// state is what is known of a request so far. It is made by the first filter,
// and belongs to the request's goroutine.
type state struct {
	info   *request.Info
	w      http.ResponseWriter // of the answer, as it came
	user   user.Info
	body   []byte             // all of it, unless it is a tunnel's
	memory budget.Reservation // what the request holds
	// unread is how long the client may take, when it is answered, to send what is
	// left of the body; zero: nothing is, or that does not hold up the answer.
	unread time.Duration
	audit  *audit.Request // nil: it is not audited
	span   *tracing.Span  // nil: it is not traced
	seat
	record
	remainder
}

var _ warning.Recorder = (*state)(nil)

// AddWarning tells the client what others have found out about the request, its
// credentials above all.
func (st *state) AddWarning(_, text string) { answer.AddWarning(st.w, text) }

type stateKey struct{}

// stateOf returns the request's state.
func stateOf(r *http.Request) *state { return r.Context().Value(stateKey{}).(*state) }

// unreadShare is the part of a request's time that may be spent on a body nobody
// wants: a second by default. Whoever sends at a fair pace keeps the connection.
const unreadShare = 60

func (s *Server) withRequestInfo(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.handle(next, w, r).wait()
	})
}

// handle has next handle a request, with what its path says. What is left to do is waited for
// without the stack that this takes.
//
//go:noinline
func (s *Server) handle(next http.Handler, w http.ResponseWriter, r *http.Request) *remainder {
	deepen()
	st := &state{info: request.Parse(r), w: w, record: s.begin()}
	s.elsewhere(st.info, r)
	if r.ProtoMajor == 1 && r.ContentLength != 0 && !st.info.Tunnel() {
		st.unread = s.o.RequestTimeout / unreadShare
	}
	w.Header().Set("Cache-Control", "no-cache, private")
	id := request.AuditID(r)
	w.Header().Set("Audit-Id", id)
	ctx := context.WithValue(r.Context(), stateKey{}, st)
	if s.o.Audit != nil {
		st.audit = s.o.Audit.New(id)
		ctx = audit.NewContext(ctx, st.audit)
	}
	next.ServeHTTP(w, r.WithContext(warning.WithWarningRecorder(ctx, st)))
	return &st.remainder
}

// deepen gives the goroutine of a request the stack that nearly all of them need: from
// 2 KiB on it would be moved to one twice as large three times, which takes longer than
// all that happens on it before.
//
//go:noinline
func deepen() {
	var room [stackRoom]byte
	runtime.KeepAlive(&room[0])
}

// stackRoom makes a stack of 16 KiB of any smaller one.
const stackRoom = 9 << 10

func (s *Server) withPanicGuard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			if p == http.ErrAbortHandler {
				panic(p) // net/http cuts the connection off
			}
			s.log.ErrorContext(r.Context(), "request handler panicked", "method", r.Method, "path", r.URL.Path, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			http.Error(w, "This request caused apiserver to panic. Look in the logs for details.", http.StatusInternalServerError)
		}()
		next.ServeHTTP(w, r)
	})
}

func (s *Server) withAuthn(next http.Handler) http.Handler {
	anonymous := &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		st := stateOf(r)
		if st.user = callerOf(r.Context()); st.user != nil {
			next.ServeHTTP(w, r)
			return
		}
		if s.o.Authenticator == nil {
			st.user = anonymous
			next.ServeHTTP(w, r)
			return
		}
		began := time.Now()
		res, ok, err := s.o.Authenticator.AuthenticateRequest(r)
		st.audit.Spent(audit.Authentication, time.Since(began))
		if err != nil || !ok {
			s.metrics.authenticated(nil, err, began)
			if err != nil {
				s.log.DebugContext(r.Context(), "authentication failed", "err", err)
			}
			s.refuse(w, r, apierrors.NewUnauthorized("Unauthorized"))
			return
		}
		if hasSpacedToken(r) {
			answer.AddWarning(w, "the provided Authorization header contains extra space before the bearer token, and is ignored")
		}
		r.Header.Del("Authorization")
		st.user = res.User
		s.metrics.authenticated(st.user, nil, began)
		if st.user.GetName() != user.Anonymous {
			door.Known(r.Context(), func() bool { return partyOf(st.user).system })
		}
		if s.o.While != nil && st.info.LongRunning() {
			ctx, cancel := context.WithCancel(r.Context())
			defer st.after(cancel)
			defer st.after(s.o.While(r, cancel))
			r = r.WithContext(ctx)
		}
		next.ServeHTTP(w, r)
	})
}

// hasSpacedToken reports a header that was meant to show a token: what is before
// the second space is empty, and that is the token.
func hasSpacedToken(r *http.Request) bool {
	const prefix = "bearer  "
	auth := strings.TrimSpace(r.Header.Get("Authorization"))
	return len(auth) > len(prefix) && strings.EqualFold(auth[:len(prefix)], prefix)
}

func (s *Server) withDeadline(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if st := stateOf(r); st.info.LongRunning() {
			ctx, cancel := untilStop(r.Context())
			defer st.after(cancel)
			next.ServeHTTP(w, r.WithContext(ctx))
			return
		}
		limit := s.o.RequestTimeout
		if strings.Contains(r.URL.RawQuery, "timeout=") {
			if asked := r.URL.Query().Get("timeout"); asked != "" {
				d, err := time.ParseDuration(asked)
				if err != nil {
					s.refuse(w, r, refusal.BadRequest("invalid timeout specified in the request URL - %v", err))
					return
				}
				if d > 0 {
					limit = min(limit, d)
				}
			}
		}
		ctx, cancel := context.WithTimeout(r.Context(), limit)
		defer cancel()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

func (s *Server) withAuthz(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.decide(r.Context(), attributesOf(r), stateOf(r).audit); err != nil {
			s.writeError(w, r, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// withCompression compresses the answers to reads that end.
func (s *Server) withCompression(next http.Handler) http.Handler {
	return compress.Handler(next, func(r *http.Request) bool {
		in := stateOf(r).info
		return (in.Verb == "list" || in.Verb == "get") && !in.LongRunning() && !in.Elsewhere
	})
}

// attributesOf is a request as the authorizer sees it. Selectors matter to it
// too: node agents may list the pods of their own node only.
func attributesOf(r *http.Request) *authorizer.AttributesRecord {
	st := stateOf(r)
	in := st.info
	a := &authorizer.AttributesRecord{
		User: st.user, Verb: in.Verb, Namespace: in.Namespace, APIGroup: in.Group, APIVersion: in.Version,
		Resource: in.Plural, Subresource: in.Sub, Name: in.Name, ResourceRequest: in.Resource, Path: in.Path,
	}
	if !in.Selects() || !strings.Contains(r.URL.RawQuery, "Selector=") {
		return a
	}
	query := r.URL.Query()
	withSelectors(a, query.Get("fieldSelector"), query.Get("labelSelector"))
	return a
}

// withSelectors adds what a list is narrowed by.
func withSelectors(a *authorizer.AttributesRecord, field, label string) {
	if field != "" {
		selector, err := fields.ParseSelector(field)
		if a.FieldSelectorParsingErr = err; err == nil {
			a.FieldSelectorRequirements = selector.Requirements()
		}
	}
	if label != "" {
		selector, err := labels.Parse(label)
		if a.LabelSelectorParsingErr = err; err == nil {
			a.LabelSelectorRequirements, _ = selector.Requirements()
		}
	}
}

// withImpersonation lets those who may act for others do so.
func (s *Server) withImpersonation(next http.Handler) http.Handler {
	impersonator := request.NewImpersonator(s.authorize, refusal.Forbidden)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		want, err := request.Impersonated(r.Header)
		if err != nil {
			s.writeError(w, r, refusal.BadRequest("%v", err))
			return
		}
		if want == nil {
			next.ServeHTTP(w, r)
			return
		}
		st := stateOf(r)
		as, constraint, err := impersonator.As(r.Context(), want, attributesOf(r))
		if err != nil {
			s.writeError(w, r, err)
			return
		}
		request.StripImpersonation(r.Header)
		st.audit.Impersonated(as, constraint)
		st.user = as
		next.ServeHTTP(w, r)
	})
}

// mux serves what the path names.
func (s *Server) mux() http.Handler {
	plain := s.plainPaths()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch in := stateOf(r).info; {
		case in.Elsewhere:
			s.serveElsewhere(w, r)
		case in.Resource:
			s.serveResource(w, r, in)
		default:
			plain.ServeHTTP(w, r)
		}
	})
}

// writeJSON answers a path that is no resource.
func writeJSON(w http.ResponseWriter, v any) {
	body, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", request.JSON)
	_, _ = w.Write(body) // an error means that the client has gone
}

// authorize refuses what the user may not do.
func (s *Server) authorize(ctx context.Context, a authorizer.Attributes) error {
	return s.decide(ctx, a, nil)
}

// decide is authorize for what a request itself asks for, of which is told what was decided.
func (s *Server) decide(ctx context.Context, a authorizer.Attributes, told *audit.Request) error {
	if s.o.Authorizer == nil {
		return nil
	}
	asked := time.Now()
	decision, reason, err := s.o.Authorizer.Authorize(ctx, a)
	took := time.Since(asked)
	s.metrics.authorized(decision, err, took)
	told.Spent(audit.Authorization, took)
	told.Decided(decision, reason)
	if decision == authorizer.DecisionAllow {
		return nil
	}
	if err != nil {
		s.log.DebugContext(ctx, "authorization error", "err", err, "user", a.GetUser().GetName())
	}
	return refusal.Forbidden(a, reason)
}

// writeError answers with the Status of an error.
func (s *Server) writeError(w http.ResponseWriter, r *http.Request, err error) {
	tellError(stateOf(r).audit, err)
	answer.Error(w, r, err, s.log)
}
