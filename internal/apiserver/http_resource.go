package apiserver

import (
	"cmp"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kemudi/kemudi/internal/apiserver/answer"
	"github.com/kemudi/kemudi/internal/apiserver/call"
	"github.com/kemudi/kemudi/internal/apiserver/read"
	"github.com/kemudi/kemudi/internal/apiserver/refusal"
	"github.com/kemudi/kemudi/internal/apiserver/request"
	"github.com/kemudi/kemudi/internal/apiserver/served"
	"github.com/kemudi/kemudi/internal/apiserver/watch"
	"github.com/kemudi/kemudi/internal/resource"
)

// exchange is one HTTP request on a resource, and its answer.
type exchange struct {
	answer.Reply
	s *Server
}

// serveResource answers a request whose path names a resource. Authorization
// has been done.
func (s *Server) serveResource(w http.ResponseWriter, r *http.Request, in *request.Info) {
	t := s.routes.Load()
	res := t.lookup(in.Group, in.Version, in.Plural)
	if res == nil || s.yields(t, in.Group) || isMisplaced(res, in) {
		s.serveUnknown(w, r, in)
		return
	}
	st := stateOf(r)
	c := &call.Call{Verb: in.Verb, Resource: res, Namespace: in.Namespace, Name: in.Name, User: st.user, Agent: r.UserAgent(), Audit: st.audit}
	p := &exchange{Reply: answer.Reply{W: w, R: r, Body: st.body, Call: c, Encoded: s.encoded, Log: s.log}, s: s}
	v, err := s.gate(c, in.Sub)
	if err == nil && r.Method == http.MethodHead && in.Sub == "" && res.Def.Dynamic == nil {
		err = refusal.MethodNotAllowed()
	}
	switch {
	case err != nil:
		p.Fail(err)
	case v == connects:
		p.connect()
	case p.negotiate(formsOf(c, v)):
		p.perform(v)
	}
	p.s.tellDeprecated(r, c)
}

// formsOf are the forms in which the answer to a call may be.
func formsOf(c *call.Call, v *verb) request.Allowed {
	can := v.forms
	can.NoProto = c.Resource.Def.Dynamic != nil && (c.Sub == nil || c.Sub.Body == nil)
	return can
}

// perform does what the call asks for, and answers.
func (p *exchange) perform(v *verb) {
	ctx, end := p.trace(p.R.Context())
	defer end()
	a, err := p.s.perform(ctx, p.Call, v, p)
	if p.Traced = p.traceAnswer(); p.Traced != nil {
		defer p.Call.Trace.Event("Writing http response done")
		defer p.Traced.End()
	}
	switch {
	case p.Call.Verb == "watch" && apierrors.IsResourceExpired(err):
		p.expired(err)
	case err != nil:
		p.Fail(err)
	case a.watch != nil:
		p.stream(a.watch)
	case a.page != nil:
		p.page(a.page)
	case a.Gone && !p.Call.Resource.Def.AnswersDeleted:
		p.Deleted(a.Item)
	case a.Item != nil:
		p.Item(cmp.Or(a.Code, http.StatusOK), a.Item)
	default:
		p.Part(cmp.Or(a.Code, http.StatusOK), a.Body)
	}
}

// expired tells that a watch cannot begin where it is to, as if it had begun.
func (p *exchange) expired(err error) {
	tell := func(r *answer.Reply) { r.Events(p.s.o.RequestTimeout).Fail(err) }
	if watch.WantsMessages(p.R) {
		watch.ByMessages(&p.Reply, tell)
		return
	}
	tell(&p.Reply)
}

// stream sends the events of a watch until the client or its time is gone.
func (p *exchange) stream(w *watch.Watch) {
	if err := p.CheckTable(); err != nil {
		w.Close()
		p.Fail(err)
		return
	}
	st := stateOf(p.R)
	defer st.after(p.s.metrics.watch(p.Call))
	p.Sent = p.s.metrics.events.of(p.Call.Resource)
	_, span := p.Call.Step(p.R.Context(), "WatchServer.HandleHTTP")
	defer st.after(span.End)
	w.Least, w.Announced = p.s.o.WatchTime, func() {
		p.s.metrics.announced(p.Call, st.start)
		span.Event("Writing initial events done")
		span.End()
		if p.Call.Trace.Span != st.span {
			p.Call.Trace.End()
		}
	}
	span.Event("About to start writing response")
	if watch.WantsMessages(p.R) {
		if !watch.ByMessages(&p.Reply, func(r *answer.Reply) { w.Serve(r, p.s.pace, p.s.o.RequestTimeout) }) {
			w.Close()
		}
		return
	}
	if goesOn := w.Serve(&p.Reply, p.s.pace, p.s.o.RequestTimeout); goesOn != nil {
		st.goOn(goesOn, w.Close)
	}
}

// page answers with a list, if there is the memory to make it.
func (p *exchange) page(page *read.Page) {
	if n := p.MemoryOf(page); n > 0 && !stateOf(p.R).memory.Take(n) {
		p.s.tooMany(p.W, p.R)
		return
	}
	p.Collection(page)
}

// isMisplaced reports a path that a kind that is known at run time only does not have: within
// a namespace, or without one. To clients there is no such resource.
func isMisplaced(res *served.Resource, in *request.Info) bool {
	switch {
	case res.Def.Dynamic == nil:
		return false
	case !res.Def.Namespaced:
		return in.Namespace != ""
	}
	return in.Namespace == "" && in.Verb != "list" && in.Verb != "watch"
}

// serveUnknown answers for a resource that is not here.
func (s *Server) serveUnknown(w http.ResponseWriter, r *http.Request, in *request.Info) {
	s.noteOff(r, in)
	s.serveMissing(w, r, in.Group)
}

// serveMissing answers for what is not here of a group: with a Status where it has built-in resources,
// and in plain text where nothing is, or only kinds that are known at run time.
func (s *Server) serveMissing(w http.ResponseWriter, r *http.Request, group string) {
	if group == "" || s.routes.Load().builtIn(group) {
		s.writeError(w, r, refusal.NotFound())
		return
	}
	http.NotFound(w, r)
}

// negotiate settles the form of the answer; ok is false if none fits, which has
// been answered then.
func (p *exchange) negotiate(can request.Allowed) (ok bool) {
	a, err := request.Negotiate(p.R, can)
	switch built := p.Call.Resource.Def.Dynamic == nil; {
	case err != nil && built && !request.Named(p.R.Header.Get("Accept"), request.Types...):
		types := request.Types
		if can.List || can.Stream { // which have the same paths
			types = slices.Concat(types, request.StreamTypes)
		}
		err = refusal.NoRepresentation(types)
	case err != nil && can.Stream:
		can.Stream = false
		if _, other := request.Negotiate(p.R, can); other == nil { // all but that it is a stream
			err = refusal.NotAcceptable(request.StreamTypes)
		}
	case err == nil && a.Shape == request.Metadata && a.List != can.List:
		err = refusal.OtherShape(call.GoType(p.Call.Resource.GVK, built), can.List)
	}
	if err != nil {
		p.Fail(err)
		return false
	}
	p.Accept = a
	return true
}

var _ input = (*exchange)(nil)

func (p *exchange) revision() (string, error) {
	if p.R.URL.RawQuery == "" {
		return "", nil
	}
	return request.Revision(p.R.URL)
}

// document is the request's body, which has been read by a filter.
func (p *exchange) document() call.Document {
	return p.Document()
}

func (p *exchange) sent(c *call.Call) (runtime.Object, error) {
	c.Again = func() (runtime.Object, error) { return p.read(c) }
	return p.read(c)
}

// read reads the object that was sent.
func (p *exchange) read(c *call.Call) (runtime.Object, error) {
	d := p.document()
	if c.Sub != nil && c.Sub.Body != nil {
		body := c.Sub.Body.New()
		return body, d.Decode(c, body, d.Accepted(c.Sub.Body))
	}
	obj := c.Resource.New()
	if err := d.Decode(c, obj, c.Resource.GVK); err != nil || c.Handler() != resource.Generic {
		return obj, err
	}
	stored, err := c.Resource.ToStorage(obj)
	if err != nil {
		return nil, refusal.BadRequest("%v", err)
	}
	return stored, nil
}

func (p *exchange) listOptions() (*metav1.ListOptions, error) { return request.ListOptions(p.R.URL) }

func (p *exchange) writeOptions() (metav1.PatchOptions, error) {
	return request.WriteOptions(p.R.URL, p.Call.Verb == "patch")
}

// deleteOptions reads them from the body, or from the parameters if it is empty.
func (p *exchange) deleteOptions() (*metav1.DeleteOptions, error) {
	o := &metav1.DeleteOptions{}
	if d := p.document(); len(d.Body) > 0 {
		return o, d.DeleteOptions(o)
	}
	return o, request.DeleteOptions(p.R.URL, o)
}
