package apiserver

import (
	"context"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kemudi/kemudi/internal/api/discovery"
	"github.com/kemudi/kemudi/internal/apiserver/request"
	"github.com/kemudi/kemudi/internal/apiserver/tunnel"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/resource"
)

// subHandler is the code behind a subresource, or a question, that is more than
// a read-merge-write. One of the two functions is set.
type subHandler struct {
	// do answers an object (nil for a get) with another, over HTTP and in process
	// alike. body is of the kind that the declaration's Body names, or of the
	// resource itself.
	do func(ctx context.Context, s *Server, c *call, body runtime.Object) (runtime.Object, error)
	// tunnel takes the connection: streams, and what is not objects.
	tunnel func(t *tunnel.Tunnels, q *tunnel.Request)
}

// subHandlers lists them by the names that declarations use (Sub.Handler and
// Spec.Handler). A new one is added here.
func subHandlers() map[string]subHandler {
	return map[string]subHandler{
		"binding":  {do: bind},         // pods/binding: sub_binding.go
		"eviction": {do: evict},        // pods/eviction: sub_eviction.go
		"finalize": {do: finalize},     // namespaces/finalize: sub_finalize.go
		"token":    {do: requestToken}, // serviceaccounts/token: sub_token.go

		// Questions: sub_review.go.
		"tokenreview":              {do: tokenReview},
		"selfsubjectreview":        {do: selfSubjectReview},
		"subjectaccessreview":      {do: subjectAccessReview},
		"localsubjectaccessreview": {do: localSubjectAccessReview},
		"selfsubjectaccessreview":  {do: selfSubjectAccessReview},
		"selfsubjectrulesreview":   {do: selfSubjectRulesReview},

		// What nodes and pods answer: package tunnel.
		"log":         {tunnel: (*tunnel.Tunnels).Log},
		"exec":        {tunnel: (*tunnel.Tunnels).Exec},
		"attach":      {tunnel: (*tunnel.Tunnels).Attach},
		"portforward": {tunnel: (*tunnel.Tunnels).PortForward},
		"proxy":       {tunnel: (*tunnel.Tunnels).Proxy},
	}
}

// serveHandler runs a named handler for an HTTP request.
func (p *reply) serveHandler(in *request.Info) {
	name, d := p.c.res.def.Handler, p.c.res.def
	body, gvk := func() runtime.Object { return p.c.res.newObject() }, p.c.res.gvk
	if p.c.sub != nil {
		name = p.c.sub.Handler
		if b := p.c.sub.Body; b != nil {
			body, gvk = b.New, gvkOf(b)
		}
	}
	h, ok := p.s.handlers[name]
	switch {
	case !ok:
		p.fail(genericNotFound())
	case h.tunnel != nil:
		p.warnings()
		h.tunnel(&p.s.tunnels, &tunnel.Request{W: p.w, R: p.r, Def: p.c.res.def, Name: p.c.name, API: &tunnelAPI{p.s, p.c}})
	case !handlerVerb(p.c, in.Verb):
		p.fail(methodNotAllowed())
	default:
		p.runHandler(h, body, handled{gvk, d.CreateOnly})
	}
}

// handlerVerb reports whether the handler's subresource has the verb.
func handlerVerb(c *call, verb string) bool {
	if c.sub == nil {
		return verb == "create"
	}
	for _, v := range c.sub.Verbs {
		if v == verb {
			return true
		}
	}
	return false
}

// handled is what a handler's body is, and whether it belongs to a question.
type handled struct {
	gvk      schema.GroupVersionKind
	question bool
}

func (p *reply) runHandler(h subHandler, body func() runtime.Object, k handled) {
	if !p.negotiate(request.Allowed{}) {
		return
	}
	var obj runtime.Object
	if p.r.Method != http.MethodGet {
		if err := p.writeOptions("CreateOptions"); err != nil {
			p.fail(err)
			return
		}
		d, ok := p.body()
		if !ok {
			return
		}
		obj = body()
		if err := d.decode(p.c, obj, k.gvk); err != nil {
			p.fail(err)
			return
		}
	}
	answer, err := h.do(p.r.Context(), p.s, p.c, obj)
	if err != nil {
		p.fail(err)
		return
	}
	code := http.StatusOK
	if p.r.Method == http.MethodPost {
		code = http.StatusCreated
	}
	gvk := k.gvk
	if set := answer.GetObjectKind().GroupVersionKind(); !set.Empty() {
		gvk = set
	} else if obj, ok := answer.(resource.Object); ok && sameType(obj, p.c.res.def) {
		p.item(code, newItem(obj, 0))
		return
	}
	p.object(code, gvk, answer)
}

func (s *Server) newTunnels() tunnel.Tunnels {
	return tunnel.Tunnels{Nodes: s.o.Nodes, Logger: s.log, Slices: func(namespace, service string) []*cache.Item {
		return s.o.Caches.Cache(discovery.EndpointSlices.Def).ByIndex(discovery.IndexService, cache.Key(namespace, service))
	}}
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
