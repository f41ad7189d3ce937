package admission

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/audit"
	"github.com/kemudi/kemudi/internal/auth/rbac"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/hook"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/task"
)

// Operations.
const (
	Create  = "CREATE"
	Update  = "UPDATE"
	Delete  = "DELETE"
	Connect = "CONNECT"
)

// Attributes are a write as admission sees it.
type Attributes struct {
	Operation       string // Create, Update, Delete or Connect
	Def             *resource.Def
	GVK             schema.GroupVersionKind // the version of Def that the request speaks; empty: the one that is stored
	Sub             string
	Namespace, Name string
	Object          runtime.Object  // what shall be; nil on delete. Mutate may change it, but for what a subresource does not write: that is shared with Old.
	Old             resource.Object // what is; nil on create. Read-only.
	User            user.Info
	DryRun          bool
	Options         runtime.Object // CreateOptions, UpdateOptions, PatchOptions or DeleteOptions
	Warn            func(text string)
	Audit           *audit.Request // for [audit.Request.Annotate]; nil: the write is not audited

	// Relied is what the answers of the plugins rest on: see Rely.
	Relied []Relied
	// Carried is what is written together with the object: see Carry.
	Carried []Carried
	// After is called, last first, when it is known what has become of the write.
	After []func()

	// Pass is 0, and 1 where the plugins that mutate are asked once more: see Again.
	Pass  int
	again bool
	kept  map[any]any
}

// Again has the plugins that mutate asked a second time, all of them and in their order, because
// the object is no longer as those at the beginning have seen it. There is no third time.
func (a *Attributes) Again() { a.again = true }

// Keep notes something for the plugin itself, to be found in the second pass; the key is of a
// type of the plugin's own.
func (a *Attributes) Keep(key, value any) {
	if a.kept == nil {
		a.kept = map[any]any{}
	}
	a.kept[key] = value
}

// Kept is what was noted under a key; nil: nothing.
func (a *Attributes) Kept(key any) any { return a.kept[key] }

// Relied is an object as a plugin saw it.
type Relied struct {
	Def    *resource.Def
	Object resource.Object
}

// Rely has the write committed only if obj is then still as the plugin saw it;
// otherwise the plugins are asked again, by Recheck. So a namespace cannot go between the
// look at it and the creation of an object within.
func (a *Attributes) Rely(def *resource.Def, obj resource.Object) {
	a.Relied = append(a.Relied, Relied{def, obj})
}

// Carried is another object that a plugin changes by the write.
type Carried struct {
	Def *resource.Def
	Was resource.Object // as the plugin saw it
	Now resource.Object // as it is to be; handed over
	// Stored is told of the object as it was stored, if it was; nil: nobody is.
	Stored func(resource.Object)
}

// Carry has another object changed in the write's own transaction, and the write
// committed only if that object is then still as the plugin saw it; otherwise the
// plugins are asked again. It must be called by Validate: what is written stays as
// the plugin makes it, and is neither admitted nor validated. A dry run changes
// nothing.
func (a *Attributes) Carry(c Carried) {
	a.Rely(c.Def, c.Was)
	a.Carried = append(a.Carried, c)
}

// Finally has f called when it is known what has become of the write, or the
// plugins are asked again.
func (a *Attributes) Finally(f func()) { a.After = append(a.After, f) }

// Is reports whether the write is of the resource itself, or of the subresource
// sub, by one of the operations.
func (a *Attributes) Is(def *resource.Def, sub string, operations ...string) bool {
	return a.Def == def && a.Sub == sub && slices.Contains(operations, a.Operation)
}

// Forbid refuses the write, in the words of upstream's admission.
func (a *Attributes) Forbid(format string, args ...any) error {
	name := a.Name
	if obj, ok := a.Object.(resource.Object); ok && name == "" {
		if name = obj.GetName(); name == "" {
			name = obj.GetGenerateName()
		}
	}
	if name == "" {
		name = "Unknown"
	}
	return apierrors.NewForbidden(a.Def.GroupResource(), name, fmt.Errorf(format, args...))
}

// Plugin is one step of admission. Functions may be nil.
type Plugin struct {
	Name string
	// Mutate may change a.Object, which is the request's own.
	Mutate func(ctx context.Context, a *Attributes) error
	// Validate may only refuse.
	Validate func(ctx context.Context, a *Attributes) error
	// Recheck may only refuse, too. It is asked when something that plugins relied on or carried with the
	// write has changed, about an object that has not: who relies or carries has one.
	Recheck func(ctx context.Context, a *Attributes) error
	// Run is what the plugin does beside until ctx ends; nil: nothing.
	Run func(ctx context.Context) error
}

// Options are what plugins look at. Caches is required.
type Options struct {
	// Caches gives the cache of a resource; nil if the server has none of it.
	Caches func(def *resource.Def) *cache.Cache
	// Fresh returns when the caches show all that was written before it was
	// called; it is asked before something is refused for want of an object.
	// Nil: they always do.
	Fresh func(ctx context.Context) error
	// Authorizer decides what needs a permission of its own (to approve
	// certificates, to grant roles). Nil: everybody everything.
	Authorizer authorizer.UnconditionalAuthorizer
	// Rules are what users have by roles. Nil: granting is not looked at.
	Rules *rbac.Authorizer
	// Defs are all resources that are served.
	Defs []*resource.Def
	// Kinds are the resources that are served at present. Nil: Defs.
	Kinds func() []*resource.Def
	// Served reports whether clients can reach a resource. Nil: they can all.
	Served func(def *resource.Def) bool
	// API is the API as the process itself sees it, for plugins that make objects. Nil:
	// they make none.
	API func() client.Transport
	// Webhooks calls webhooks. Nil: none can be called.
	Webhooks *hook.Caller
	// Events takes what plugins have to tell of objects that they let pass. Nil: nobody does.
	Events client.EventSink
	// Registry takes the metrics of plugins. Nil: they are not shown.
	Registry *prometheus.Registry
	// Enable and Disable name plugins that are on or off other than by default
	// (--enable-admission-plugins, --disable-admission-plugins).
	Enable, Disable []string
	// Config is what plugins are told beyond that (--admission-control-config-file).
	Config Configurations
	// Stay is how long pods stay on nodes that are gone, unless they say so themselves.
	Stay Stay
	// Server tells this server from others in metrics.
	Server string
	// Logger is told of what operators must know. Nil: nobody is.
	Logger *slog.Logger
}

// DefaultStay is how long that is unless told otherwise, in seconds.
const DefaultStay = 300

// Stay is how long pods stay on nodes in a bad state, in seconds, each by its flag. Nil: [DefaultStay].
type Stay struct {
	NotReady    *int64 // --default-not-ready-toleration-seconds
	Unreachable *int64 // --default-unreachable-toleration-seconds
}

// Present are the resources that are served at present.
func (o *Options) Present() []*resource.Def {
	if o.Kinds == nil {
		return o.Defs
	}
	return o.Kinds()
}

// Serves reports whether clients can reach a resource.
func (o *Options) Serves(def *resource.Def) bool { return o.Served == nil || o.Served(def) }

// Chain is plugins that are asked one after the other. It may be used concurrently.
type Chain struct {
	plugins []Plugin
	metrics *metrics // nil: nothing is measured
}

// NewChain returns the chain of the plugins, in their order.
func NewChain(plugins ...Plugin) *Chain { return &Chain{plugins: plugins} }

// Measured is the chain that shows in reg how long plugins take.
func (c *Chain) Measured(reg *prometheus.Registry) *Chain {
	return &Chain{plugins: c.plugins, metrics: newMetrics(reg, c.plugins)}
}

// Names lists the plugins in order.
func (c *Chain) Names() []string {
	names := make([]string, len(c.plugins))
	for i, p := range c.plugins {
		names[i] = p.Name
	}
	return names
}

// Mutate asks all plugins to change or refuse the write, and once more if one of them wants it.
func (c *Chain) Mutate(ctx context.Context, a *Attributes) (err error) {
	t := c.metrics.clock(admits, a)
	defer func() { t.stop(err) }()
	if err = c.mutate(ctx, a, &t); err != nil || !a.again {
		return err
	}
	a.Pass = 1
	return c.mutate(ctx, a, &t)
}

func (c *Chain) mutate(ctx context.Context, a *Attributes, t *clock) error {
	for i := range c.plugins {
		if f := c.plugins[i].Mutate; f != nil {
			err := f(ctx, a)
			t.lap(i, err)
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// Validate asks all plugins to refuse the write.
func (c *Chain) Validate(ctx context.Context, a *Attributes) (err error) {
	t := c.metrics.clock(validates, a)
	defer func() { t.stop(err) }()
	for i := range c.plugins {
		if f := c.plugins[i].Validate; f != nil {
			err = f(ctx, a)
			t.lap(i, err)
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// Recheck asks the plugins that rely on something or carry something once more.
func (c *Chain) Recheck(ctx context.Context, a *Attributes) error {
	for i := range c.plugins {
		if f := c.plugins[i].Recheck; f != nil {
			if err := f(ctx, a); err != nil {
				return err
			}
		}
	}
	return nil
}

// Runs reports whether any plugin does something beside.
func (c *Chain) Runs() bool {
	return slices.ContainsFunc(c.plugins, func(p Plugin) bool { return p.Run != nil })
}

// Run does what plugins do beside until ctx ends.
func (c *Chain) Run(ctx context.Context) error {
	g := task.NewGroup(ctx)
	for _, p := range c.plugins {
		if p.Run != nil {
			g.Go(p.Name, p.Run)
		}
	}
	return g.Wait()
}

// Reader reads a resource from its cache; one that the server does not have is empty.
func Reader[T resource.Object](o *Options, r *resource.Resource[T]) client.Reader[T] {
	return client.Reader[T]{Cache: CacheOf(o, r.Def)}
}

// CacheOf is the cache of a resource; that of one that the server does not have is empty.
func CacheOf(o *Options, def *resource.Def) *cache.Cache {
	if c := o.Caches(def); c != nil {
		return c
	}
	return cache.New(def, &cache.Progress{})
}

// Find reads one object, and again from a fresh cache if it is not there.
func Find[T resource.Object](ctx context.Context, o *Options, r client.Reader[T], namespace, name string) (obj T, ok bool, err error) {
	if obj, ok = r.Get(namespace, name); ok {
		return obj, true, nil
	}
	if err := o.Fresh(ctx); err != nil {
		return obj, false, err
	}
	obj, ok = r.Get(namespace, name)
	return obj, ok, nil
}

// ForPods is a plugin that changes or refuses pods that are created.
func ForPods(name string, f func(ctx context.Context, a *Attributes, pod *corev1.Pod) error) Plugin {
	return Plugin{Name: name, Mutate: func(ctx context.Context, a *Attributes) error {
		if pod, ok := a.Object.(*corev1.Pod); ok && a.Is(core.Pods.Def, "", Create) {
			return f(ctx, a, pod)
		}
		return nil
	}}
}
