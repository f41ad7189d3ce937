package parts

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kemudi/kemudi/internal/api"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/client/https"
	"github.com/kemudi/kemudi/internal/features"
	"github.com/kemudi/kemudi/internal/obs"
	"github.com/kemudi/kemudi/internal/obs/tracing"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/scavenge"
	"github.com/kemudi/kemudi/internal/secureport"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/version"
)

// API says where the API is and who asks, each field by its flag.
type API struct {
	Kubeconfig string // --kubeconfig; empty: as the pod that this runs in
	Master     string // --master: URL of the server, in place of the kubeconfig's

	Emulated   []string // --emulated-version
	Compatible []string // --min-compatibility-version

	Tracing *tracing.Provider // makes spans of requests; nil: there are none
}

// config is what the kubeconfig says, for a client of that name.
func (a API) config(name string) (*rest.Config, error) {
	c, err := clientcmd.BuildConfigFromFlags(a.Master, a.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("find the API (--kubeconfig): %w", err)
	}
	c.UserAgent = name
	return c, nil
}

// Connect returns the API as the user of the kubeconfig sees it. What the part writes is
// managed by name.
func (a API) Connect(name string, log *slog.Logger) (*https.Transport, error) {
	c, err := a.config(name)
	if err != nil {
		return nil, err
	}
	return connect(c, log, a.Tracing)
}

func connect(c *rest.Config, log *slog.Logger, traces *tracing.Provider) (*https.Transport, error) {
	o, err := https.FromConfig(c)
	if err != nil {
		return nil, err
	}
	o.Logger, o.Tracing = log.With("part", "api"), traces
	return https.New(o)
}

// process is what every part has: a connection to the API, events, metrics and health.
type process struct {
	name     string // upstream's of the part
	host     string // of the machine
	level    version.Level
	api      *https.Transport
	config   *rest.Config
	events   *client.Recorder
	registry *prometheus.Registry
	health   *obs.Health
	log      *slog.Logger
}

func newProcess(name string, a API, log *slog.Logger) (*process, error) {
	level, err := version.ParseLevel(a.Emulated, a.Compatible)
	if err != nil {
		return nil, fmt.Errorf("--emulated-version, --min-compatibility-version: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("find this machine's name: %w", err)
	}
	p := &process{name: name, host: host, level: level, registry: obs.NewRegistry(), health: &obs.Health{Log: log}, log: log}
	p.registry.MustRegister(obs.VersionInfo(level), features.Metrics{})
	if p.config, err = a.config(name); err != nil {
		return nil, err
	}
	if p.api, err = connect(p.config, log, nil); err != nil {
		return nil, err
	}
	p.events = client.NewRecorder(p.api, host, log)
	return p, nil
}

// part is the process as its port shows it.
func (p *process) part(c secureport.Configuration) secureport.Part {
	return secureport.Part{Name: p.name, Host: p.host, API: p.api, Level: p.level, Health: p.health, Registry: p.registry, Config: c, Logger: p.log}
}

// identity is a name of this process that no other has.
func (p *process) identity() string { return p.host + "_" + uuid.NewString() }

// run runs the part's tasks until ctx ends or one of them fails. Connection and events
// outlast them: who leads gives its lease back.
func (p *process) run(ctx context.Context, begin func(g *task.Group) error) error {
	under, g := task.NewGroup(context.WithoutCancel(ctx)), task.NewGroup(ctx)
	under.Go("connection to the servers", p.api.Run)
	g.Go("events", p.events.Run)
	g.Go("memory", func(ctx context.Context) error {
		return scavenge.Run(ctx, scavenge.Options{Log: p.log.With("part", "memory")})
	})
	if err := begin(g); err != nil {
		g.Cancel(err)
	}
	err := g.Wait()
	under.Cancel(context.Canceled)
	if failed := under.Wait(); err == nil {
		err = failed
	}
	return err
}

// Waits for an API that does not answer yet.
const (
	firstAsked   = 200 * time.Millisecond
	longestAsked = 10 * time.Second
)

// served are the resources that the API serves, of those that this program knows. It asks
// until the API says so, or ctx ends.
func (p *process) served(ctx context.Context) ([]*resource.Def, error) {
	backoff := task.Backoff{Initial: firstAsked, Max: longestAsked, Jitter: 0.2}
	for {
		defs, err := discover(ctx, p.api)
		if err == nil {
			return defs, nil
		}
		wait := backoff.Next()
		if ctx.Err() == nil {
			p.log.Warn("the API does not say what it serves", "err", err, "again", wait.Round(time.Millisecond))
		}
		if task.Sleep(ctx, wait) != nil {
			return nil, fmt.Errorf("ask the API what it serves: %w", err)
		}
	}
}

// discover asks for each group and version once.
func discover(ctx context.Context, t client.Transport) (defs []*resource.Def, _ error) {
	known := map[string]map[string]bool{} // the plural names that are served, by group and version
	for _, def := range api.All() {
		gv := metav1.GroupVersion{Group: def.Group, Version: def.Version}.String()
		if _, asked := known[gv]; !asked {
			names, err := plurals(ctx, t, gv, def.Group)
			if err != nil {
				return nil, err
			}
			known[gv] = names
		}
		if known[gv][def.Plural] {
			defs = append(defs, def)
		}
	}
	return defs, nil
}

func plurals(ctx context.Context, t client.Transport, gv, group string) (map[string]bool, error) {
	path := "/apis/" + gv
	if group == "" {
		path = "/api/" + gv
	}
	answer, err := t.Do(ctx, &client.Request{Verb: "get", Path: path})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var list metav1.APIResourceList
	if err := json.Unmarshal(answer.(*runtime.Unknown).Raw, &list); err != nil {
		return nil, fmt.Errorf("read what %s has: %w", path, err)
	}
	names := map[string]bool{}
	for i := range list.APIResources {
		names[list.APIResources[i].Name] = true
	}
	return names, nil
}
