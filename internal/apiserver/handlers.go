package apiserver

import (
	"context"
	"net/http"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kemudi/kemudi/internal/api/discovery"
	"github.com/kemudi/kemudi/internal/apiserver/action"
	"github.com/kemudi/kemudi/internal/apiserver/request"
	"github.com/kemudi/kemudi/internal/apiserver/tunnel"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/resource"
)

// handlers are the code behind subresources and questions that are more than a
// read-merge-write, by the names that declarations use (Sub.Handler and
// Spec.Handler).
type handlers struct {
	// actions answer an object with another, over HTTP and in process alike.
	// They get what the declaration's Body names, or the resource itself.
	actions map[string]action.Func
	// tunnels take the connection: streams, and what is not objects.
	tunnels map[string]tunnel.Func
}

func (s *Server) newHandlers() handlers {
	a := action.Actions{Cache: s.o.Caches.Cache, Authenticator: s.o.Authenticator, Authorizer: s.o.Authorizer, Tokens: s.o.Tokens}
	t := tunnel.Tunnels{Nodes: s.o.Nodes, Logger: s.log, Slices: func(namespace, service string) []*cache.Item {
		return s.o.Caches.Cache(discovery.EndpointSlices.Def).ByIndex(discovery.IndexService, cache.Key(namespace, service))
	}}
	return handlers{actions: a.List(), tunnels: t.List()}
}

// handler is the name of the code behind the call; empty: there is none but the
// generic.
func (c *call) handler() string {
	switch {
	case c.sub != nil:
		return c.sub.Handler
	case c.res.def.CreateOnly:
		return c.res.def.Handler
	}
	return ""
}

// serveHandler runs a named handler for an HTTP request.
func (p *reply) serveHandler() {
	name := p.c.handler()
	if connect := p.s.handlers.tunnels[name]; connect != nil {
		p.warnings()
		connect(&tunnel.Request{W: p.w, R: p.r, Def: p.c.res.def, Name: p.c.name, API: &tunnelAPI{p.s, p.c}})
		return
	}
	do := p.s.handlers.actions[name]
	switch {
	case do == nil:
		p.fail(genericNotFound())
	case !p.c.handlerHas(p.c.verb):
		p.fail(methodNotAllowed())
	default:
		p.runAction(do)
	}
}

// handlerHas reports whether the handler's subresource, or question, has the verb.
func (c *call) handlerHas(verb string) bool {
	if c.sub == nil {
		return verb == "create"
	}
	return slices.Contains(c.sub.Verbs, verb)
}

// runAction reads the body and answers with what the action makes of it.
func (p *reply) runAction(do action.Func) {
	if !p.negotiate(request.Allowed{}) {
		return
	}
	gvk := p.c.res.gvk
	var body runtime.Object = p.c.res.newObject()
	if p.c.sub != nil && p.c.sub.Body != nil {
		gvk, body = gvkOf(p.c.sub.Body), p.c.sub.Body.New()
	}
	if p.r.Method == http.MethodGet {
		body = nil
	} else {
		if err := p.writeOptions("CreateOptions"); err != nil {
			p.fail(err)
			return
		}
		d, ok := p.body()
		if !ok {
			return
		}
		if p.c.sub != nil && p.c.sub.Body != nil {
			gvk = d.accepted(p.c.sub.Body)
		}
		if err := d.decode(p.c, body, gvk); err != nil {
			p.fail(err)
			return
		}
	}
	answer, err := do(p.r.Context(), p.s.actionRequest(p.c, body))
	if err != nil {
		p.fail(err)
		return
	}
	code := http.StatusOK
	if p.r.Method == http.MethodPost {
		code = http.StatusCreated
	}
	if set := answer.GetObjectKind().GroupVersionKind(); !set.Empty() {
		gvk = set
	} else if obj, ok := answer.(resource.Object); ok && sameType(obj, p.c.res.def) {
		p.item(code, newItem(obj, 0))
		return
	}
	p.object(code, gvk, answer)
}

// sameType reports whether obj is of the Go type that def stores.
func sameType(obj resource.Object, def *resource.Def) bool {
	return reflect.TypeOf(obj) == reflect.TypeOf(def.New())
}

// actionRequest is the call as an action sees it.
func (s *Server) actionRequest(c *call, body runtime.Object) *action.Request {
	q := &action.Request{
		Def: c.res.def, Version: c.res.ver, Namespace: c.namespace, Name: c.name, User: c.user, DryRun: c.dryRun, Body: body,
	}
	q.API = &actionAPI{s: s, c: c, q: q}
	return q
}

// actionAPI is what the action of a call asks of the server.
type actionAPI struct {
	s *Server
	c *call
	q *action.Request
}

var _ action.API = (*actionAPI)(nil)

// call is the call with what the action has learnt of it.
func (a *actionAPI) call() *call {
	a.c.name, a.c.dryRun = a.q.Name, a.q.DryRun
	return a.c
}

// Get reads the call's object.
func (a *actionAPI) Get(ctx context.Context) (resource.Object, error) {
	it, err := a.s.get(ctx, a.call(), "")
	if err != nil {
		return nil, err
	}
	return it.Object, nil
}

// Fit holds the body's name and namespace against the call's.
func (a *actionAPI) Fit(body metav1.Object) error { return a.call().fitName(body) }

// Admit asks both halves of admission.
func (a *actionAPI) Admit(ctx context.Context, body runtime.Object) error {
	return a.s.admitBody(ctx, a.call(), body)
}

// Write carries a change through the pipeline.
func (a *actionAPI) Write(ctx context.Context, ch action.Change) (resource.Object, error) {
	c := a.call()
	if ch.Def != nil {
		c = &call{
			verb: "update", res: a.s.storage(ch.Def), namespace: c.namespace, name: ch.Name,
			user: c.user, agent: c.agent, dryRun: c.dryRun,
		}
	}
	item, err := a.s.write(ctx, c, change{tracked: ch.Own, trusted: ch.Own, only: &ch.If, make: func(_ context.Context, old resource.Object) (resource.Object, error) {
		return ch.Make(old)
	}})
	if err != nil {
		return nil, err
	}
	return item.Object, nil
}

// Delete deletes the call's object, as if that had been asked for.
func (a *actionAPI) Delete(ctx context.Context, o *metav1.DeleteOptions) error {
	c := *a.call()
	c.sub, c.verb = nil, "delete"
	_, _, err := a.s.delete(ctx, &c, o)
	return err
}

// tunnelAPI is what the tunnel of a call sees of the server.
type tunnelAPI struct {
	s *Server
	c *call
}

var _ tunnel.API = (*tunnelAPI)(nil)

// Get reads an object of the call's resource and namespace.
func (t *tunnelAPI) Get(ctx context.Context, name string) (resource.Object, error) {
	c := *t.c
	c.name = name
	it, err := t.s.get(ctx, &c, "")
	if err != nil {
		return nil, err
	}
	return it.Object, nil
}

// Admit asks both halves of admission.
func (t *tunnelAPI) Admit(ctx context.Context, options runtime.Object) error {
	a := t.c.admission()
	a.Operation, a.Object = "CONNECT", options
	if err := t.s.o.Admission.Mutate(ctx, a); err != nil {
		return err
	}
	return t.s.o.Admission.Validate(ctx, a)
}

// Fail answers with an error.
func (t *tunnelAPI) Fail(w http.ResponseWriter, r *http.Request, err error) {
	t.s.writeError(w, r, err)
}
