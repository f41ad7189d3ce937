package container

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"sync"

	"github.com/containerd/containerd/v2/plugins"
	"github.com/containerd/plugin"
	"github.com/containerd/plugin/registry"
	"github.com/pelletier/go-toml/v2"

	// The parts of containerd that are used, and no others: importing one is
	// what registers it.
	_ "github.com/containerd/containerd/api/types/runc/options"
	_ "github.com/containerd/containerd/v2/core/runtime/v2"
	_ "github.com/containerd/containerd/v2/plugins/content/local/plugin"
	_ "github.com/containerd/containerd/v2/plugins/cri"
	_ "github.com/containerd/containerd/v2/plugins/cri/images"
	_ "github.com/containerd/containerd/v2/plugins/cri/runtime"
	_ "github.com/containerd/containerd/v2/plugins/diff/walking/plugin"
	_ "github.com/containerd/containerd/v2/plugins/events"
	_ "github.com/containerd/containerd/v2/plugins/gc"
	_ "github.com/containerd/containerd/v2/plugins/leases"
	_ "github.com/containerd/containerd/v2/plugins/metadata"
	_ "github.com/containerd/containerd/v2/plugins/mount"
	_ "github.com/containerd/containerd/v2/plugins/sandbox"
	_ "github.com/containerd/containerd/v2/plugins/services/containers"
	_ "github.com/containerd/containerd/v2/plugins/services/content"
	_ "github.com/containerd/containerd/v2/plugins/services/diff"
	_ "github.com/containerd/containerd/v2/plugins/services/events"
	_ "github.com/containerd/containerd/v2/plugins/services/images"
	_ "github.com/containerd/containerd/v2/plugins/services/introspection"
	_ "github.com/containerd/containerd/v2/plugins/services/leases"
	_ "github.com/containerd/containerd/v2/plugins/services/namespaces"
	_ "github.com/containerd/containerd/v2/plugins/services/sandbox"
	_ "github.com/containerd/containerd/v2/plugins/services/snapshots"
	_ "github.com/containerd/containerd/v2/plugins/services/streaming"
	_ "github.com/containerd/containerd/v2/plugins/services/tasks"
	_ "github.com/containerd/containerd/v2/plugins/services/transfer"
	_ "github.com/containerd/containerd/v2/plugins/services/version"
	_ "github.com/containerd/containerd/v2/plugins/services/warning"
	_ "github.com/containerd/containerd/v2/plugins/snapshots/native/plugin"
	_ "github.com/containerd/containerd/v2/plugins/snapshots/overlay/plugin"
	_ "github.com/containerd/containerd/v2/plugins/streaming"
	_ "github.com/containerd/containerd/v2/plugins/transfer"
)

// plugged is a loaded containerd: its plugins, in the order they were loaded.
type plugged struct {
	set   *plugin.Set
	ready []chan struct{} // each closed when a plugin has done what it must before it answers
}

// loadPlugins loads every registered plugin that is not disabled, each with its
// settings, in an order that has what a plugin needs loaded before it. ctx
// lives as long as the plugins. After an error nothing is left loaded.
func loadPlugins(ctx context.Context, o Options) (*plugged, error) {
	conf := pluginSettings(o)
	p := &plugged{set: plugin.NewPluginSet()}
	for _, r := range registered(o) {
		if err := p.load(ctx, o, o.withRegistries(r), conf[r.URI()]); err != nil {
			return nil, errors.Join(err, p.close())
		}
	}
	return p, nil
}

// registered returns the plugins to load, in order.
func registered(o Options) []plugin.Registration {
	off := disabled(o)
	return registry.Graph(func(r *plugin.Registration) bool { return off[r.URI()] })
}

func (p *plugged) load(ctx context.Context, o Options, r plugin.Registration, conf map[string]any) error {
	id := r.URI()
	ic := plugin.NewContext(ctx, p.set, map[string]string{
		plugins.PropertyRootDir:      filepath.Join(o.rootDir(), id),
		plugins.PropertyStateDir:     filepath.Join(o.stateDir(), id),
		plugins.PropertyGRPCAddress:  o.Socket(),
		plugins.PropertyTTRPCAddress: o.Socket() + ".ttrpc",
	})
	ic.RegisterReadiness = func() func() {
		ready := make(chan struct{})
		p.ready = append(p.ready, ready)
		return sync.OnceFunc(func() { close(ready) })
	}
	if ic.Config = r.Config; conf != nil {
		if err := decodeSettings(conf, r.Config); err != nil {
			return fmt.Errorf("configure containerd plugin %s: %w", id, err)
		}
	}
	result := r.Init(ic)
	if err := p.set.Add(result); err != nil {
		return fmt.Errorf("load containerd plugin %s: %w", id, err)
	}
	if _, err := result.Instance(); err != nil && !plugin.IsSkipPlugin(err) {
		return fmt.Errorf("load containerd plugin %s: %w", id, err)
	}
	return nil
}

// decodeSettings puts conf into a plugin's configuration struct, whose type is
// private to containerd: its field names are known by their TOML tags alone.
func decodeSettings(conf map[string]any, into any) error {
	data, err := toml.Marshal(conf)
	if err != nil {
		return err
	}
	return toml.NewDecoder(bytes.NewReader(data)).DisallowUnknownFields().Decode(into)
}

// instance returns the plugin of the given type and name.
func (p *plugged) instance(t plugin.Type, id string) (any, error) {
	found := p.set.Get(t, id)
	if found == nil {
		return nil, fmt.Errorf("containerd plugin %s.%s is not loaded", t, id)
	}
	return found.Instance()
}

// services calls f with every plugin that offers an API.
func (p *plugged) services(f func(instance any) error) error {
	for _, pl := range p.set.GetAll() {
		if t := pl.Registration.Type; t != plugins.GRPCPlugin && t != plugins.TTRPCPlugin {
			continue
		}
		instance, err := pl.Instance()
		if err != nil {
			continue // skipped at load
		}
		if err := f(instance); err != nil {
			return fmt.Errorf("serve containerd plugin %s: %w", pl.Registration.URI(), err)
		}
	}
	return nil
}

// close closes the plugins, last loaded first.
func (p *plugged) close() error {
	var errs []error
	for _, pl := range slices.Backward(p.set.GetAll()) {
		instance, err := pl.Instance()
		if err != nil {
			continue
		}
		if c, ok := instance.(io.Closer); ok {
			if err := c.Close(); err != nil {
				errs = append(errs, fmt.Errorf("close containerd plugin %s: %w", pl.Registration.URI(), err))
			}
		}
	}
	return errors.Join(errs...)
}
