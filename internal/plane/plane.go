package plane

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/aggregate"
	"github.com/kemudi/kemudi/internal/api"
	"github.com/kemudi/kemudi/internal/api/coordination"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/metrics"
	"github.com/kemudi/kemudi/internal/api/scheduling"
	"github.com/kemudi/kemudi/internal/apiserver"
	"github.com/kemudi/kemudi/internal/apiserver/read"
	"github.com/kemudi/kemudi/internal/auth/modes"
	"github.com/kemudi/kemudi/internal/auth/rbac"
	"github.com/kemudi/kemudi/internal/backend"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/controllers"
	"github.com/kemudi/kemudi/internal/features"
	"github.com/kemudi/kemudi/internal/hook"
	"github.com/kemudi/kemudi/internal/leader"
	"github.com/kemudi/kemudi/internal/metricsserver"
	"github.com/kemudi/kemudi/internal/obs"
	"github.com/kemudi/kemudi/internal/obs/tracing"
	"github.com/kemudi/kemudi/internal/reach/egress"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/scheduler"
	"github.com/kemudi/kemudi/internal/scheduler/config"
	"github.com/kemudi/kemudi/internal/servers"
	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/store/fence"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/watchcache"
)

// Options configure a control plane. Store, CABundle and Logger are
// required.
type Options struct {
	Store    store.Store
	CABundle string // PEM, for kube-root-ca.crt
	Network  Network
	Logger   *slog.Logger
	Registry *prometheus.Registry // nil: a new one
	Tracing  *tracing.Provider    // makes spans of requests; nil: there are none

	// Authorization says who decides what others than parts of this process may do.
	Authorization modes.Options
	Egress        egress.Selection // by which proxies webhooks of authorization are asked
	// Plugins are on or off other than by default.
	Plugins Plugins
	// Scheduler says how to schedule; nil: as upstream.
	Scheduler *config.Config

	// ProxyCertificate is by which servers of aggregated APIs know this one, as [tls.Config] wants it; nil:
	// they do not.
	ProxyCertificate func(*tls.CertificateRequestInfo) (*tls.Certificate, error)
	// Serving configures the API server beyond what is set here; nil: as it is.
	Serving func(o *apiserver.Options, caches *watchcache.Set) error
	// Controllers configures the controllers beyond what is set here.
	Controllers controllers.Options
	// Shared says that other control planes work on the store as well, from the start: one of them is
	// elected to run the controllers, one the scheduler. Who is alone pays nothing before Share.
	Shared bool
	// Alone says that neither controllers nor scheduler run here: processes of their own do.
	Alone bool
	// Election says how; of the scheduler, its configuration does, if there is one.
	Election leader.Settings
	// Features say whether leases are given away to those who stand for them as LeaseCandidates, Coordinated how one of several
	// servers is elected to do so.
	Features    features.Gates
	Coordinated leader.Settings
	// Leadership decides in place of elections; nil: nobody does.
	Leadership controller.Leadership
	// Host names this process in events, with a random part in elections, and in the record by which
	// other servers know that it lives. There, Address is that of its API, and Node the node of this machine;
	// both may be missing.
	Host    string
	Address netip.AddrPort
	Node    string
}

// Plane is store, API server, controllers and scheduler in one process.
type Plane struct {
	o      Options
	caches *watchcache.Set
	server *apiserver.Server
	agents *metricsserver.Agents
	kinds  *kinds

	backends   *backend.Services
	aggregator *aggregate.Aggregator
	calls      *hook.Caller    // of webhooks
	builtIn    []*resource.Def // what is served from the start
	ready      chan struct{}
	made       made

	uid     string // of this process
	record  *servers.Keeper
	lead    leadership
	sharing sync.Once
	shared  chan struct{} // closed when others may work on the store
	leaving sync.Once
	left    chan struct{} // closed when others are to take over

	recorder   *client.Recorder
	roles      *rbac.Authorizer
	authorizer *modes.Authorizer
	admit      *admission.Chain
}

// made are the objects that every cluster has, each closed when they are there.
type made struct{ namespaces, priorities, roles, customKinds chan struct{} }

// New puts a control plane together; Run runs it.
func New(o Options) (*Plane, error) {
	if o.Registry == nil {
		o.Registry = prometheus.NewRegistry()
	}
	var err error
	if o.Network, err = o.Network.WithDefaults(); err != nil {
		return nil, err
	}
	if err := o.checkElections(); err != nil {
		return nil, err
	}
	if o.elects() || o.coordinates() {
		o.Store = fence.Store{Store: o.Store}
	}
	defs := api.All()
	p := &Plane{o: o, kinds: newKinds(defs), builtIn: defs, ready: make(chan struct{}), uid: uuid.NewString(), shared: make(chan struct{}), left: make(chan struct{})}
	if o.Shared {
		close(p.shared)
	}
	p.made = made{make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan struct{})}
	p.caches, err = watchcache.New(watchcache.Options{
		Store: o.Store, Defs: defs, Logger: o.Logger.With("part", "watchcache"),
		Others: func(changes []store.Change, rev int64) { p.server.Told(changes, rev) },
		Missed: func(rev int64) { p.server.Missed(rev) },
	})
	if err != nil {
		return nil, err
	}
	p.aggregation()
	p.calls = p.webhooks()
	if p.admit, err = p.admission(); err != nil {
		return nil, err
	}
	serving := apiserver.Options{
		Store: o.Store, Shared: o.Shared, Defs: defs, Caches: p.caches, Values: apiserver.Values{Settings: o.Network.settings(), Events: told{p, "portallocator-repair-controller"}},
		Told:     apiserver.Told{Tracing: o.Tracing},
		Registry: o.Registry, Logger: o.Logger.With("part", "apiserver"), Authorizer: p.authorizer, Admission: p.admit,
		Health: p.health(), Connections: apiserver.Connections{Settled: p.ready},
	}
	if o.Serving != nil {
		if err := o.Serving(&serving, p.caches); err != nil {
			return nil, err
		}
	}
	if !o.Alone {
		serving.Plain = p.withScheduler(serving.Plain)
	}
	p.agents = metricsserver.NewAgents(serving.Nodes)
	if serving.Nodes != nil {
		p.backends.Connect = serving.Nodes.DialAddress
	}
	if serving.Aggregated == nil {
		serving.Aggregated = p.aggregator
	}
	serving.Sources = p.sources()
	if p.server, err = apiserver.New(serving); err != nil {
		return nil, err
	}
	p.recorder = client.NewRecorder(p.Admin(), o.Host, o.Logger)
	p.record = servers.NewKeeper(servers.Options{
		Self:  servers.Self{Host: o.Host, UID: p.uid, Address: o.Address, Node: o.Node},
		Store: o.Store, Leases: p.caches.Cache(coordination.Leases.Def), Logger: o.Logger,
	})
	p.lead = p.leadership()
	return p, nil
}

// sources make what is computed: what nodes and pods use.
func (p *Plane) sources() map[*resource.Def]read.Source {
	s := metricsserver.New(metricsserver.Options{
		Ask: p.agents.Ask, Nodes: p.caches.Cache(core.Nodes.Def), Pods: p.caches.Cache(core.Pods.Def), Logger: p.o.Logger.With("part", "metrics"),
	})
	return map[*resource.Def]read.Source{metrics.Nodes.Def: metricsserver.Nodes{S: s}, metrics.Pods.Def: metricsserver.Pods{S: s}, core.ComponentStatuses.Def: components{p}}
}

// health checks what an answer depends on, by upstream's names: the store, caches
// that hold all of it, and the objects that every cluster has. What is to be done
// once fails until it has been; liveness needs that too, as upstream.
func (p *Plane) health() *obs.Health {
	h := &obs.Health{Log: p.o.Logger}
	store := func(ctx context.Context) error {
		_, _, err := p.o.Store.Get(ctx, "/registry/health")
		return err
	}
	h.Add(
		obs.Check{Name: "etcd", Run: store},
		obs.Check{Name: "etcd-readiness", ReadyOnly: true, Run: func(ctx context.Context) error { // it also is quick
			ctx, cancel := context.WithTimeoutCause(ctx, storeReady, fmt.Errorf("no answer within %s", storeReady))
			defer cancel()
			return store(ctx)
		}},
		obs.Check{Name: "informer-sync", Run: obs.Done(p.caches.Synced()), ReadyOnly: true},
		// Admission decides by the caches: it can once they are complete.
		obs.Check{Name: "poststarthook/start-apiserver-admission-initializer", Run: obs.Done(p.caches.Synced())},
		obs.Check{Name: "poststarthook/start-system-namespaces-controller", Run: obs.Done(p.made.namespaces)},
		obs.Check{Name: "poststarthook/scheduling/bootstrap-system-priority-classes", Run: obs.Done(p.made.priorities)},
		obs.Check{Name: "poststarthook/rbac/bootstrap-roles", Run: obs.Done(p.made.roles)},
		obs.Check{Name: "poststarthook/crd-informer-synced", Run: obs.Done(p.made.customKinds)},
		obs.Check{Name: "poststarthook/start-apiextensions-controllers", Run: obs.Done(p.made.customKinds)},
	)
	for _, name := range withCaches {
		h.Add(obs.Check{Name: name, Run: obs.Done(p.caches.Synced())})
	}
	if p.o.coordinates() {
		h.Add(obs.Check{Name: "poststarthook/start-kube-apiserver-coordinated-leader-election-controller", Run: obs.Done(p.caches.Synced())})
	}
	return h
}

// withCaches are upstream's names of parts that work here as soon as the caches are complete: by them people know
// whether a server is one.
var withCaches = []string{
	"poststarthook/generic-apiserver-start-informers",
	"poststarthook/priority-and-fairness-config-consumer",
	"poststarthook/priority-and-fairness-filter",
	"poststarthook/storage-object-count-tracker-hook",
	"poststarthook/start-apiextensions-informers",
	"poststarthook/start-cluster-authentication-info-controller",
	"poststarthook/start-kube-aggregator-informers",
	"poststarthook/apiservice-status-local-available-controller",
	"poststarthook/apiservice-status-remote-available-controller",
	"poststarthook/apiservice-registration-controller",
	"poststarthook/apiservice-discovery-controller",
	"poststarthook/kube-apiserver-autoregistration",
	"autoregister-completion",
	"poststarthook/apiservice-openapi-controller",
	"poststarthook/apiservice-openapiv3-controller",
}

// storeReady is how soon a store answers that is ready for requests.
const storeReady = 2 * time.Second

// Authorizer decides who may do what.
func (p *Plane) Authorizer() *modes.Authorizer { return p.authorizer }

// Server is the API server.
func (p *Plane) Server() *apiserver.Server { return p.server }

// Ready is closed when the API can be used: caches are complete and the
// objects that every cluster has are there.
func (p *Plane) Ready() <-chan struct{} { return p.ready }

// Admin is the API as the process itself sees it: everything is allowed.
func (p *Plane) Admin() client.Transport {
	return p.server.As(&user.DefaultInfo{Name: user.APIServerUser, Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}}, "kemudi")
}

// as is the API as the service account of that name in kube-system sees it.
func (p *Plane) as(name string) client.Transport {
	return p.server.As(&user.DefaultInfo{
		Name:   "system:serviceaccount:kube-system:" + name,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:kube-system", user.AllAuthenticated},
	}, controller.Agent(name))
}

// Run runs the control plane until ctx ends or a part of it fails. The API answers until
// controllers and scheduler have ended: who leads gives its leases back.
func (p *Plane) Run(ctx context.Context) error {
	api, g := task.NewGroup(context.WithoutCancel(ctx)), task.NewGroup(ctx)
	stop := context.AfterFunc(api.Context(), func() { g.Cancel(context.Cause(api.Context())) })
	defer stop()
	defer p.agents.Close()
	defer p.calls.Close()
	defer p.authorizer.Close()
	api.Go("watch cache", p.caches.Run)
	api.Go("api server", p.server.Run)
	if p.admit.Runs() {
		api.Go("admission", p.admit.Run)
	}
	g.Go("aggregated APIs", p.aggregator.Run)
	g.Go("own group-versions", func(ctx context.Context) error {
		select {
		case <-p.ready:
			return p.aggregator.Register(ctx)
		case <-ctx.Done():
			return nil
		}
	})
	api.Go("custom kinds", p.followDefinitions)
	g.Go("control", func(ctx context.Context) error {
		select {
		case <-p.caches.Synced():
		case <-ctx.Done():
			return nil
		}
		all := p.Controllers()
		if err := p.bootstrap(ctx, all); err != nil {
			return fmt.Errorf("create the objects that every cluster has: %w", err)
		}
		// The authorizer goes by the caches: nobody acts before it has seen the roles.
		if err := p.caches.Fresh(ctx); err != nil {
			return err
		}
		select {
		case <-p.made.customKinds:
		case <-ctx.Done():
			return nil
		}
		close(p.ready)
		return p.control(ctx, all)
	})
	err := g.Wait()
	api.Cancel(context.Canceled)
	return cmp.Or(api.Wait(), err)
}

// Controllers are the controllers of the cluster.
func (p *Plane) Controllers() []*controller.Controller {
	o := p.o.Controllers
	o.Kinds, o.CABundle, o.PodCIDRs, o.Registry = p.kinds, p.o.CABundle, p.o.Network.ClusterCIDRs, p.o.Registry
	o.ServerNode, o.Elsewhere = p.o.Node, p.aggregator.Empty
	o.Cloud.ClusterCIDRs = p.o.Network.ClusterCIDRs
	o.PodGroups = p.server.Serves(scheduling.PodGroups.Def)
	o.DNS.Address, o.ServiceCIDR.Ranges = p.o.Network.ClusterDNS, p.o.Network.ServiceCIDRs
	return controllers.All(o)
}

// control runs controllers and scheduler, if they are this process's.
func (p *Plane) control(ctx context.Context, all []*controller.Controller) error {
	g, m := task.NewGroup(ctx), controller.NewMetrics(p.o.Registry)
	g.Go("events", p.recorder.Run)
	g.Go("other servers", p.among)
	p.coordinate(g, m)
	if p.o.Alone {
		return g.Wait()
	}
	sched := scheduler.New(scheduler.Options{
		Transport: p.server.As(&user.DefaultInfo{Name: user.KubeScheduler, Groups: []string{user.AllAuthenticated}}, "kube-scheduler"),
		Events:    p.recorder.For,
		Logger:    p.o.Logger.With("part", "scheduler"),
		Registry:  p.o.Registry,
		Config:    p.o.Scheduler,
		PodGroups: p.server.Serves(scheduling.PodGroups.Def),
	})
	env := controller.Env{
		As: p.as, Recorder: p.recorder.For, Logger: p.o.Logger, Metrics: m, Manager: "kube-controller-manager", Leadership: p.lead.controllers,
	}
	g.Go("controllers", func(ctx context.Context) error {
		return controller.RunAll(ctx, p.o.Controllers.Running(all), env)
	})
	g.Go("scheduler", func(ctx context.Context) error {
		if p.lead.scheduler == nil {
			return sched.Run(ctx)
		}
		return p.lead.scheduler.Lead(ctx, sched.Run)
	})
	return g.Wait()
}
