package parts

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"

	configv1 "k8s.io/kube-scheduler/config/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/scheduling"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/leader"
	"github.com/kemudi/kemudi/internal/scheduler"
	"github.com/kemudi/kemudi/internal/scheduler/config"
	"github.com/kemudi/kemudi/internal/secureport"
	"github.com/kemudi/kemudi/internal/task"
)

// SchedulerName is upstream's name of what puts pods on nodes, and that of its lease.
const SchedulerName = "kube-scheduler"

// Scheduler are the options of the scheduler alone, each field by its flag.
type Scheduler struct {
	API        API
	Secure     secureport.Options
	ConfigFile string          // --config: a KubeSchedulerConfiguration
	Election   leader.Settings // --leader-elect and others, which go before the file
	Logger     *slog.Logger
}

// DefaultScheduler are the options of who is given none.
func DefaultScheduler() Scheduler {
	o := Scheduler{Secure: secureport.Defaults(10259), Election: leader.Defaults(), Logger: slog.Default()}
	o.Election.Names = []string{SchedulerName}
	return o
}

// Run schedules until ctx ends, whenever this process leads.
func (o Scheduler) Run(ctx context.Context) error {
	c, err := o.config()
	if err != nil {
		return err
	}
	if err := o.Secure.Check(); err != nil {
		return err
	}
	p, err := newProcess(SchedulerName, o.API, o.Logger)
	if err != nil {
		return err
	}
	var s *scheduler.Scheduler // once this process has led
	return p.run(ctx, func(g *task.Group) error {
		p.hold(g, office{settings: c.LeaderElection, reporter: config.DefaultName, work: func(ctx context.Context) error {
			if s == nil {
				defs, err := p.served(ctx)
				if err != nil {
					return err
				}
				s = scheduler.New(scheduler.Options{
					Transport: p.api, Events: p.events.For, Logger: p.log.With("part", "scheduler"), Registry: p.registry,
					Config: c, PodGroups: slices.Contains(defs, scheduling.PodGroups.Def),
				})
			}
			return s.Run(ctx)
		}})
		port := p.part(secureport.Configuration{Name: "componentconfig", Value: shown(c, o)})
		port.Further = map[string]http.Handler{
			scheduler.ResourcesPath: scheduler.Resources(func() *cache.Cache { return p.api.Cache(core.Pods.Def, "") }, p.log),
		}
		return o.Secure.Serve(g, port)
	})
}

// shown is the configuration as upstream's file has it, with what flags say in its place.
func shown(c *config.Config, o Scheduler) *configv1.KubeSchedulerConfiguration {
	f := c.File()
	f.ClientConnection.Kubeconfig = o.API.Kubeconfig
	f.EnableProfiling = &o.Secure.Profiling
	return f
}

// config is the configuration of the file, with what flags say in its place.
func (o *Scheduler) config() (*config.Config, error) {
	if len(o.Election.Names) != 1 {
		return nil, errNames
	}
	c := config.Default()
	if o.ConfigFile != "" {
		data, err := os.ReadFile(o.ConfigFile)
		if err != nil {
			return nil, fmt.Errorf("--config: %w", err)
		}
		if c, err = config.Parse(data); err != nil {
			return nil, fmt.Errorf("--config %s: %w", o.ConfigFile, err)
		}
	}
	if o.API.Kubeconfig == "" {
		o.API.Kubeconfig = c.Kubeconfig
	}
	for _, idle := range c.Idle {
		if idle.Field != "clientConnection.kubeconfig" {
			o.Logger.Warn("a field of --config has no effect", "field", idle.Field, "why", idle.Why)
		}
	}
	c.LeaderElection = o.Election.Over(c.LeaderElection, 1)
	if err := checkOffice(c.LeaderElection); err != nil {
		return nil, fmt.Errorf("leader election, by flags and by --config: %w", err)
	}
	return c, nil
}
