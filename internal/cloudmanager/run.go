package cloudmanager

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/client/https"
	"github.com/kemudi/kemudi/internal/cloud"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/controllers"
	"github.com/kemudi/kemudi/internal/leader"
	"github.com/kemudi/kemudi/internal/obs"
	"github.com/kemudi/kemudi/internal/scavenge"
	"github.com/kemudi/kemudi/internal/secureport"
	"github.com/kemudi/kemudi/internal/task"
)

// manager is one running cloud controller manager.
type manager struct {
	o      Options
	begin  Begin
	config *rest.Config
	api    *https.Transport
	events *client.Recorder

	registry *prometheus.Registry
	metrics  *controller.Metrics
	health   *obs.Health
	told     sync.Once // which loops there are
}

// Run runs the loops until ctx ends, whenever this process leads. begin may be nil.
func Run(ctx context.Context, o Options, begin Begin) error {
	if err := o.check(); err != nil {
		return err
	}
	if err := o.open(); err != nil {
		return err
	}
	if !o.Controllers.Cloud.Provider.HasClusterID() && !o.Untagged {
		return errors.New("no ClusterID found: what the cloud has must be marked as this cluster's, or --allow-untagged-cloud be said")
	}
	m := &manager{o: o, begin: begin, registry: obs.NewRegistry(), health: &obs.Health{Log: o.Logger}}
	m.metrics = controller.NewMetrics(m.registry)
	if err := m.connect(); err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("find this machine's name: %w", err)
	}
	m.events = client.NewRecorder(m.api, host, o.Logger)
	// Connection and events outlast the loops, which give their lease back.
	under, g := task.NewGroup(context.WithoutCancel(ctx)), task.NewGroup(ctx)
	under.Go("connection to the servers", m.api.Run)
	g.Go("events", m.events.Run)
	g.Go("memory", func(ctx context.Context) error {
		return scavenge.Run(ctx, scavenge.Options{Log: o.Logger.With("part", "memory")})
	})
	if err := o.Secure.Serve(g, secureport.Part{Name: Name, Host: host, API: m.api, Health: m.health, Registry: m.registry, Config: o.configuration(), Logger: o.Logger}); err != nil {
		g.Cancel(err)
		return errors.Join(err, g.Wait())
	}
	if o.Election.Off {
		g.Go("loops", m.loops)
	} else {
		elector := leader.New(leader.Options{
			Settings: o.Election, Name: o.Election.Lease(0), Identity: host + "_" + uuid.NewString(), Transport: m.api,
			Events: m.events.For(Name), Metrics: leader.NewMetrics(m.registry), Logger: o.Logger,
		})
		g.Go("election", elector.Run)
		g.Go("loops", func(ctx context.Context) error { return elector.Lead(ctx, m.loops) })
	}
	err = g.Wait()
	under.Cancel(context.Canceled)
	return errors.Join(err, under.Wait())
}

// open makes the provider: one that the program has registered, or one that is built in.
func (o *Options) open() (err error) {
	c := &o.Controllers.Cloud
	c.ClusterCIDRs = o.ClusterCIDRs
	if !cloudprovider.IsCloudProvider(c.Name) {
		c.Provider, err = cloud.Open(c.Name, c.ConfigFile)
		return errors.Join(err, o.Controllers.Check())
	}
	var file *os.File
	if c.ConfigFile != "" {
		if file, err = os.Open(c.ConfigFile); err != nil {
			return fmt.Errorf("--cloud-config: %w", err)
		}
		defer file.Close()
		c.Provider, err = cloudprovider.GetCloudProvider(c.Name, file)
	} else {
		c.Provider, err = cloudprovider.GetCloudProvider(c.Name, nil)
	}
	if err == nil && c.Provider == nil {
		err = errors.New("the vendor's program has made none")
	}
	if err != nil {
		return fmt.Errorf("could not init cloud provider %q: %w", c.Name, err)
	}
	return nil
}

// connect finds out where the API is.
func (m *manager) connect() (err error) {
	if m.config, err = clientcmd.BuildConfigFromFlags(m.o.Master, m.o.Kubeconfig); err != nil {
		return fmt.Errorf("find the API (--kubeconfig): %w", err)
	}
	m.config.UserAgent = Name
	options, err := https.FromConfig(m.config)
	if err != nil {
		return err
	}
	options.Logger = m.o.Logger.With("part", "api")
	m.api, err = https.New(options)
	return err
}

// loops runs the loops until ctx ends.
func (m *manager) loops(ctx context.Context) error {
	if m.begin != nil {
		if err := m.begin(ctx, m.o.Controllers.Cloud.Provider, rest.CopyConfig(m.config)); err != nil {
			return err
		}
	}
	for _, lack := range m.o.Controllers.Cloud.Lacks() {
		m.o.Logger.Warn("a loop of the cloud does not run", "controller", lack.Loop, "why", lack.Why)
	}
	all := controllers.OfCloud(m.o.Controllers)
	m.told.Do(func() {
		for _, c := range all { // as upstream, that they run is all there is to say
			m.health.Add(obs.Check{Name: c.Name, Run: func(context.Context) error { return nil }})
		}
	})
	return controller.RunAll(ctx, all, controller.Env{
		As: func(string) client.Transport { return m.api }, Recorder: m.events.For, Logger: m.o.Logger, Metrics: m.metrics, Manager: Name,
	})
}
