package apiserver

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/resource"
)

// local is the API as called from within the process (A4).
type local struct {
	s     *Server
	user  user.Info
	agent string
}

var _ client.Transport = (*local)(nil)

// Cache returns the shared cache; local callers see all of it.
func (l *local) Cache(def *resource.Def, _ string) *cache.Cache { return l.s.o.Caches.Cache(def) }

// Do performs one request by plain calls.
func (l *local) Do(ctx context.Context, r *client.Request) (runtime.Object, error) {
	c, err := l.call(ctx, r)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, l.s.o.RequestTimeout)
	defer cancel()
	if name := c.handler(); name != "" {
		do := l.s.handlers.actions[name]
		if do == nil {
			return nil, genericNotFound()
		}
		return do(ctx, l.s.actionRequest(c, r.Object))
	}
	if c.sub != nil && c.sub.Body != nil && r.Verb != "patch" {
		return l.body(ctx, c, r)
	}
	return l.object(ctx, c, r)
}

// call resolves and authorizes a request.
func (l *local) call(ctx context.Context, r *client.Request) (*call, error) {
	c := &call{
		verb: r.Verb, res: l.s.storage(r.Def), namespace: r.Namespace, name: r.Name, user: l.user, agent: l.agent,
		dryRun: r.DryRun, manager: r.FieldManager, force: r.Force, validation: ignoreFields,
	}
	if r.Sub != "" {
		if c.sub = c.res.sub(r.Sub); c.sub == nil {
			return nil, genericNotFound()
		}
		if !slices.Contains(c.sub.Verbs, r.Verb) {
			return nil, methodNotAllowed()
		}
	}
	return c, l.s.authorize(ctx, c.attributes(r.Verb))
}

// storage is a resource at its storage version, whether or not that is served
// over HTTP.
func (s *Server) storage(d *resource.Def) *served {
	if v := s.routes.Load().lookup(d.Group, d.Version, d.Plural); v != nil {
		return v
	}
	var c *cache.Cache
	if !d.CreateOnly {
		c = s.o.Caches.Cache(d)
	}
	return newServed(d, nil, c)
}

// body serves subresources such as scale.
func (l *local) body(ctx context.Context, c *call, r *client.Request) (runtime.Object, error) {
	if r.Verb == "get" {
		it, err := l.s.get(ctx, c, "")
		if err != nil {
			return nil, err
		}
		return c.sub.Get(it.Object), nil
	}
	return l.s.updateBody(ctx, c, r.Object)
}

func (l *local) object(ctx context.Context, c *call, r *client.Request) (runtime.Object, error) {
	var it *cache.Item
	var err error
	switch r.Verb {
	case "get":
		it, err = l.s.get(ctx, c, "")
	case "create", "update":
		obj := r.Object.(resource.Object)
		clearType(obj)
		c.res.def.Default(obj)
		if r.Verb == "create" {
			it, err = l.s.create(ctx, c, obj)
		} else {
			it, _, err = l.s.update(ctx, c, obj)
		}
	case "patch":
		it, _, err = l.s.patch(ctx, c, r.PatchType, r.Patch)
		if err == nil && c.sub != nil && c.sub.Body != nil {
			return c.sub.Get(it.Object), nil
		}
	case "delete":
		c.dryRun = c.dryRun || isDryRun(r.Delete.DryRun)
		it, _, err = l.s.delete(ctx, c, &r.Delete)
	case "deletecollection":
		return nil, l.deleteCollection(ctx, c, r)
	default:
		return nil, methodNotAllowed()
	}
	if err != nil {
		return nil, err
	}
	return it.Object, nil
}

func (l *local) deleteCollection(ctx context.Context, c *call, r *client.Request) error {
	q, err := l.query(c, &r.List)
	if err != nil {
		return err
	}
	_, err = l.s.deleteCollection(ctx, c, &r.Delete, q)
	return err
}

func (l *local) query(c *call, o *metav1.ListOptions) (*listQuery, error) {
	sel, err := newSelection(c, o.LabelSelector, o.FieldSelector)
	if err != nil {
		return nil, err
	}
	return &listQuery{sel: sel, rev: o.ResourceVersion, match: o.ResourceVersionMatch, limit: o.Limit, token: o.Continue}, nil
}

// List performs a list by plain calls.
func (l *local) List(ctx context.Context, r *client.Request) (client.List, error) {
	r.Verb = "list"
	c, err := l.call(ctx, r)
	if err != nil {
		return client.List{}, err
	}
	q, err := l.query(c, &r.List)
	if err != nil {
		return client.List{}, err
	}
	p, err := l.s.list(ctx, c, q)
	if err != nil {
		return client.List{}, err
	}
	list := client.List{
		Items: make([]resource.Object, len(p.items)), ResourceVersion: p.meta.ResourceVersion,
		Continue: p.meta.Continue, Remaining: p.meta.RemainingItemCount,
	}
	for i, it := range p.items {
		list.Items[i] = it.Object
	}
	return list, nil
}
