package quota

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/core/usage"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/resource"
)

// New holds what is written in a namespace against its quotas, and charges them.
func New(o *admission.Options) (admission.Plugin, error) {
	const name = "ResourceQuota"
	limited, err := read(o.Config, name)
	p := &plugin{
		limited:    limited,
		fresh:      o.Fresh,
		quotas:     admission.Reader(o, core.ResourceQuotas),
		namespaces: admission.Reader(o, core.Namespaces),
		world:      cache.Finder(o.Caches),
	}
	p.turns.mu.byNamespace = map[string]*turn{}
	return admission.Plugin{Name: name, Validate: p.validate, Recheck: p.validate}, err
}

type plugin struct {
	limited    []limited // what nobody has without a quota
	fresh      func(ctx context.Context) error
	quotas     client.Reader[*corev1.ResourceQuota]
	namespaces client.Reader[*corev1.Namespace]
	world      usage.World
	turns      turns
}

func (p *plugin) validate(ctx context.Context, a *admission.Attributes) error {
	obj, ok := a.Object.(resource.Object)
	if !ok || a.Namespace == "" {
		return nil
	}
	create := a.Operation == admission.Create
	counter, ok := usage.For(a.Def)
	counted := ok && counter.Checks(create, a.Sub)
	about := changesWhatItIsAbout(a)
	if !counted && !about {
		return nil
	}
	it := p.namespaces.Cache.Get(a.Namespace)
	if it == nil {
		return nil // for NamespaceLifecycle to refuse
	}
	ns := it.Object.(*corev1.Namespace)
	if about {
		a.Carry(admission.Carried{Def: core.Namespaces.Def, Was: ns, Now: ns}) // Q2
	}
	if !counted {
		return nil
	}
	a.Rely(core.Namespaces.Def, ns) // Q2
	// The quotas that the namespace had when it was written are there, or will be in a
	// moment: all caches are fed at once.
	if err := p.quotas.Cache.WaitRev(ctx, it.Rev); err != nil {
		return err
	}
	return p.charge(ctx, a, newWrite(counter.Within(p.world), obj, a.Old))
}

// charge has the quotas of the namespace charged with the write, or refuses it.
func (p *plugin) charge(ctx context.Context, a *admission.Attributes, w *write) error {
	limits := p.limits(a.Def)
	if len(limits) == 0 && !p.concerned(a.Namespace, w.counter) {
		return nil
	}
	t, err := p.turns.take(ctx, a.Namespace) // Q3
	if err != nil {
		return err
	}
	a.Finally(func() { p.leave(t) })
	changed, err := w.charges(limits, p.newest(t))
	if err != nil {
		// What is refused may have been made room for by what the cache does not show yet.
		if err := p.fresh(ctx); err != nil {
			return err
		}
		if changed, err = w.charges(limits, p.newest(t)); err != nil {
			return a.Forbid("%w", err)
		}
	}
	for _, c := range changed {
		a.Carry(admission.Carried{Def: core.ResourceQuotas.Def, Was: c.was, Now: c.now, Stored: t.note}) // Q1
	}
	return nil
}

// concerned says whether a quota of the namespace counts what is written.
func (p *plugin) concerned(namespace string, c usage.Counter) bool {
	if p.quotas.Cache.Len() == 0 {
		return false
	}
	for _, it := range p.quotas.Cache.ByIndex(core.IndexNamespace, namespace) {
		q := it.Object.(*corev1.ResourceQuota)
		if c.TakesAny(q.Status.Hard) || c.TakesAny(q.Spec.Hard) {
			return true
		}
	}
	return false
}

// changesWhatItIsAbout says that the write makes a quota, or has one count what it
// did not before.
func changesWhatItIsAbout(a *admission.Attributes) bool {
	q, ok := a.Object.(*corev1.ResourceQuota)
	if !ok || !a.Is(core.ResourceQuotas.Def, "", admission.Create, admission.Update) {
		return false
	}
	old, ok := a.Old.(*corev1.ResourceQuota)
	if !ok {
		return true
	}
	for name := range q.Spec.Hard {
		if _, ok := old.Spec.Hard[name]; !ok {
			return true
		}
	}
	return !equality.Semantic.DeepEqual(q.Spec.Scopes, old.Spec.Scopes) || !equality.Semantic.DeepEqual(q.Spec.ScopeSelector, old.Spec.ScopeSelector)
}
