package apiserver

import (
	"context"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/discovery"
	"github.com/kemudi/kemudi/internal/apiserver/action"
	"github.com/kemudi/kemudi/internal/apiserver/call"
	"github.com/kemudi/kemudi/internal/apiserver/timeouts"
	"github.com/kemudi/kemudi/internal/apiserver/tunnel"
	"github.com/kemudi/kemudi/internal/apiserver/write"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/resource"
)

// handlers are the code behind subresources and questions that are more than a
// read-merge-write, by the handlers that declarations name.
type handlers struct {
	// actions answer an object with another, over HTTP and in process alike.
	// They get what the declaration's Body names, or the resource itself.
	actions map[resource.Handler]action.Func
	// tunnels take the connection: streams, and what is not objects.
	tunnels map[resource.Handler]tunnel.Func
	// close closes the connections that tunnels keep.
	close func()
}

func (s *Server) newHandlers() handlers {
	a := action.Actions{Cache: s.o.Caches.Cache, Authenticator: s.o.Authenticator, Authorizer: s.o.Authorizer, Tokens: s.o.Tokens}
	t := tunnel.New(tunnel.Options{
		Nodes: s.o.Nodes, Logger: s.log, Registry: s.o.Registry,
		Slices: func(namespace, service string) []*cache.Item {
			return s.o.Caches.Cache(discovery.EndpointSlices.Def).ByIndex(discovery.IndexService, cache.Key(namespace, service))
		},
		Pod: func(namespace, name string) *cache.Item {
			return s.o.Caches.Cache(core.Pods.Def).Get(cache.Key(namespace, name))
		},
	})
	return handlers{actions: a.List(), tunnels: t.List(), close: t.Close}
}

// connect hands the request to the call's tunnel.
func (p *exchange) connect() {
	p.Warnings()
	timeouts.Exempt(p.W)
	p.s.handlers.tunnels[p.Call.Handler()](&tunnel.Request{
		W: p.W, R: p.R, Def: p.Call.Resource.Def, Name: p.Call.Name, Below: stateOf(p.R).info.Below(), API: &tunnelAPI{p.s, p.Call},
	})
}

// actionRequest is the call as an action sees it.
func (s *Server) actionRequest(c *call.Call, body runtime.Object) *action.Request {
	q := &action.Request{
		Def: c.Resource.Def, Version: c.Resource.Version, Namespace: c.Namespace, Name: c.Name, User: c.User, DryRun: c.DryRun, Body: body,
	}
	q.API = &actionAPI{s: s, c: c, q: q}
	return q
}

// actionAPI is what the action of a call asks of the server.
type actionAPI struct {
	s *Server
	c *call.Call
	q *action.Request
}

var _ action.API = (*actionAPI)(nil)

// call is the call with what the action has learnt of it.
func (a *actionAPI) call() *call.Call {
	a.c.Name, a.c.DryRun = a.q.Name, a.q.DryRun
	return a.c
}

// Get reads the call's object.
func (a *actionAPI) Get(ctx context.Context) (resource.Object, error) {
	it, err := a.s.reads.Get(ctx, a.call(), "")
	if err != nil {
		return nil, err
	}
	return it.Object, nil
}

// Fit holds the body's name and namespace against the call's.
func (a *actionAPI) Fit(body metav1.Object) error { return a.call().FitName(body) }

// Admit asks both halves of admission.
func (a *actionAPI) Admit(ctx context.Context, body runtime.Object) error {
	return a.s.writes.AdmitBody(ctx, a.call(), body)
}

// Write carries a change through the pipeline.
func (a *actionAPI) Write(ctx context.Context, ch action.Change) (resource.Object, error) {
	c := a.call()
	if ch.Def != nil {
		c = &call.Call{
			Verb: "update", Resource: a.s.storage(ch.Def), Namespace: c.Namespace, Name: ch.Name,
			User: c.User, Agent: c.Agent, DryRun: c.DryRun,
		}
	}
	item, err := a.s.writes.Write(ctx, c, write.Change{Tracked: ch.Own, Trusted: ch.Own, Only: &ch.If, Leaving: ch.Leaving, Make: func(_ context.Context, old resource.Object) (resource.Object, error) {
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
	c.Sub, c.Verb, c.Delete = nil, "delete", o
	_, err := a.s.writes.Delete(ctx, &c)
	return err
}

// tunnelAPI is what the tunnel of a call sees of the server.
type tunnelAPI struct {
	s *Server
	c *call.Call
}

var _ tunnel.API = (*tunnelAPI)(nil)

// Get reads an object of the call's resource and namespace.
func (t *tunnelAPI) Get(ctx context.Context, name string) (resource.Object, error) {
	c := *t.c
	c.Name = name
	it, err := t.s.reads.Get(ctx, &c, "")
	if err != nil {
		return nil, err
	}
	return it.Object, nil
}

// Admit asks both halves of admission.
func (t *tunnelAPI) Admit(ctx context.Context, options runtime.Object) error {
	a := write.Attributes(t.c)
	a.Operation, a.Object = "CONNECT", options
	return t.s.writes.Admit(ctx, a)
}

// MayCreate asks the authorizer, unless it has said so by then.
func (t *tunnelAPI) MayCreate(r *http.Request) error {
	if t.c.Verb == "create" {
		return nil
	}
	a := *attributesOf(r)
	a.Verb = "create"
	return t.s.authorize(r.Context(), &a)
}

// Fail answers with an error.
func (t *tunnelAPI) Fail(w http.ResponseWriter, r *http.Request, err error) {
	t.s.writeError(w, r, err)
}
