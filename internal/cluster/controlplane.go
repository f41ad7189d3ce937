package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kemudi/kemudi/internal/api"
	"github.com/kemudi/kemudi/internal/apiserver"
	"github.com/kemudi/kemudi/internal/auth"
	"github.com/kemudi/kemudi/internal/auth/rbac"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/controllers"
	"github.com/kemudi/kemudi/internal/obs"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/scheduler"
	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/watchcache"
)

// ControlPlaneOptions configure a control plane. Store, CABundle and Logger are
// required.
type ControlPlaneOptions struct {
	Store    store.Store
	CABundle string // PEM, for kube-root-ca.crt
	Network  Network
	Logger   *slog.Logger
	Registry *prometheus.Registry // nil: a new one

	// Plugins are on or off other than by default.
	Plugins Plugins
	// NodesToScore is the share of nodes that the scheduler looks for; 0: by their number.
	NodesToScore int

	// Serving configures the API server beyond what is set here; nil: as it is.
	Serving func(o *apiserver.Options, caches *watchcache.Set) error
	// Controllers configures the controllers beyond what is set here.
	Controllers controllers.Options
	// Leadership decides which process runs controllers and scheduler; nil: this one.
	Leadership controller.Leadership
	// Host names this process in events.
	Host string
}

// ControlPlane is store, API server, controllers and scheduler in one process.
type ControlPlane struct {
	o      ControlPlaneOptions
	caches *watchcache.Set
	server *apiserver.Server
	defs   []*resource.Def
	ready  chan struct{}
	made   made

	roles      *rbac.Authorizer
	authorizer auth.Chain
}

// made are the objects that every cluster has, each closed when they are there.
type made struct{ namespaces, priorities, roles chan struct{} }

// NewControlPlane puts a control plane together; Run runs it.
func NewControlPlane(o ControlPlaneOptions) (*ControlPlane, error) {
	if o.Registry == nil {
		o.Registry = prometheus.NewRegistry()
	}
	var err error
	if o.Network, err = o.Network.withDefaults(); err != nil {
		return nil, err
	}
	c := &ControlPlane{o: o, defs: api.All(), ready: make(chan struct{})}
	c.made = made{make(chan struct{}), make(chan struct{}), make(chan struct{})}
	c.caches, err = watchcache.New(watchcache.Options{Store: o.Store, Defs: c.defs, Logger: o.Logger.With("part", "watchcache")})
	if err != nil {
		return nil, err
	}
	admit, err := c.admission()
	if err != nil {
		return nil, err
	}
	serving := apiserver.Options{
		Store: o.Store, Defs: c.defs, Caches: c.caches, Settings: o.Network.settings(),
		Registry: o.Registry, Logger: o.Logger.With("part", "apiserver"), Authorizer: c.authorizer, Admission: admit,
		Health: c.health(),
		// kubectl asks for them before it validates a kind that cannot be patched.
		Empty: []resource.Names{{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition", Plural: "customresourcedefinitions"}},
	}
	if o.Serving != nil {
		if err := o.Serving(&serving, c.caches); err != nil {
			return nil, err
		}
	}
	if c.server, err = apiserver.New(serving); err != nil {
		return nil, err
	}
	return c, nil
}

// health checks what an answer depends on, by upstream's names: the store, caches
// that hold all of it, and the objects that every cluster has. What is to be done
// once fails until it has been; liveness needs that too, as upstream.
func (c *ControlPlane) health() *obs.Health {
	h := &obs.Health{Log: c.o.Logger}
	store := func(ctx context.Context) error {
		_, _, err := c.o.Store.Get(ctx, "/registry/health")
		return err
	}
	h.Add(
		obs.Check{Name: "etcd", Run: store},
		obs.Check{Name: "etcd-readiness", ReadyOnly: true, Run: func(ctx context.Context) error { // it also is quick
			ctx, cancel := context.WithTimeoutCause(ctx, storeReady, fmt.Errorf("no answer within %s", storeReady))
			defer cancel()
			return store(ctx)
		}},
		obs.Check{Name: "informer-sync", Run: obs.Done(c.caches.Synced()), ReadyOnly: true},
		// Admission decides by the caches: it can once they are complete.
		obs.Check{Name: "poststarthook/start-apiserver-admission-initializer", Run: obs.Done(c.caches.Synced())},
		obs.Check{Name: "poststarthook/start-system-namespaces-controller", Run: obs.Done(c.made.namespaces)},
		obs.Check{Name: "poststarthook/scheduling/bootstrap-system-priority-classes", Run: obs.Done(c.made.priorities)},
		obs.Check{Name: "poststarthook/rbac/bootstrap-roles", Run: obs.Done(c.made.roles)},
	)
	return h
}

// storeReady is how soon a store answers that is ready for requests.
const storeReady = 2 * time.Second

// Server is the API server.
func (c *ControlPlane) Server() *apiserver.Server { return c.server }

// Defs are the resources that it serves.
func (c *ControlPlane) Defs() []*resource.Def { return c.defs }

// Ready is closed when the API can be used: caches are complete and the
// objects that every cluster has are there.
func (c *ControlPlane) Ready() <-chan struct{} { return c.ready }

// Admin is the API as the process itself sees it: everything is allowed.
func (c *ControlPlane) Admin() client.Transport {
	return c.server.As(&user.DefaultInfo{Name: user.APIServerUser, Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}}, "kemudi")
}

// as is the API as the service account of that name in kube-system sees it.
func (c *ControlPlane) as(name string) client.Transport {
	return c.server.As(&user.DefaultInfo{
		Name:   "system:serviceaccount:kube-system:" + name,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:kube-system", user.AllAuthenticated},
	}, name)
}

// Run runs the control plane until ctx ends or a part of it fails.
func (c *ControlPlane) Run(ctx context.Context) error {
	g := task.NewGroup(ctx)
	g.Go("watch cache", c.caches.Run)
	g.Go("api server", c.server.Run)
	g.Go("control", func(ctx context.Context) error {
		select {
		case <-c.caches.Synced():
		case <-ctx.Done():
			return nil
		}
		all := controllers.All(c.controllerOptions())
		if err := c.bootstrap(ctx, all); err != nil {
			return fmt.Errorf("create the objects that every cluster has: %w", err)
		}
		// The authorizer goes by the caches: nobody acts before it has seen the roles.
		if err := c.caches.Fresh(ctx); err != nil {
			return err
		}
		close(c.ready)
		return c.control(ctx, all)
	})
	return g.Wait()
}

func (c *ControlPlane) controllerOptions() controllers.Options {
	o := c.o.Controllers
	o.Defs, o.CABundle, o.PodCIDRs = c.defs, c.o.CABundle, c.o.Network.ClusterCIDRs
	return o
}

// control runs controllers and scheduler.
func (c *ControlPlane) control(ctx context.Context, all []*controller.Controller) error {
	recorder := client.NewRecorder(c.Admin(), c.o.Host, c.o.Logger)
	sched := scheduler.New(scheduler.Options{
		Transport: c.server.As(&user.DefaultInfo{Name: user.KubeScheduler, Groups: []string{user.AllAuthenticated}}, "kube-scheduler"),
		Events:    recorder.For("default-scheduler"),
		Logger:    c.o.Logger.With("part", "scheduler"),
		Registry:  c.o.Registry,

		PercentageOfNodesToScore: c.o.NodesToScore,
	})
	env := controller.Env{
		As: c.as, Recorder: recorder.For, Logger: c.o.Logger, Metrics: controller.NewMetrics(c.o.Registry), Leadership: c.o.Leadership,
	}
	g := task.NewGroup(ctx)
	g.Go("events", recorder.Run)
	g.Go("controllers", func(ctx context.Context) error { return controller.RunAll(ctx, all, env) })
	g.Go("scheduler", func(ctx context.Context) error {
		if c.o.Leadership == nil {
			return sched.Run(ctx)
		}
		return c.o.Leadership.Lead(ctx, sched.Run)
	})
	return g.Wait()
}
