package kubelet

import (
	"context"
	"path/filepath"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/kubelet/device"
	"github.com/kemudi/kemudi/internal/kubelet/dra"
	"github.com/kemudi/kemudi/internal/kubelet/plugin"
	"github.com/kemudi/kemudi/internal/kubelet/podresources"
	"github.com/kemudi/kemudi/internal/kubelet/podsapi"
)

// pluginRoot is the root directory as plugins see it; empty: a simulated node has none.
func (o *Options) pluginRoot() string {
	if o.Simulated {
		return o.fake.plugins
	}
	return o.RootDir
}

// newDevices returns what knows the devices of the node's plugins and drivers; nil: there are none.
func (a *Agent) newDevices() (*device.Manager, *dra.Manager) {
	root := a.o.pluginRoot()
	if root == "" {
		return nil, nil
	}
	devices := device.New(device.Options{
		Dir: filepath.Join(root, plugin.DevicesDir), Registry: a.registry, Log: a.o.Log,
		Changed: func() { a.node.Look() },
		Pods:    func(uids []types.UID) { a.pods.DevicesChanged(uids) },
	})
	claims := dra.New(dra.Options{
		Dir: root, Node: a.o.NodeName, Transport: a.o.Transport, Registry: a.registry, Log: a.o.Log,
		Changed: func() { a.pods.ClaimsChanged() },
		Pods:    func(uids []types.UID) { a.pods.DevicesChanged(uids) },
	})
	return devices, claims
}

// deviceParts are those that have to do with devices.
func (a *Agent) deviceParts() []part {
	root, runner := a.o.pluginRoot(), a.pods.Runner
	if root == "" {
		return nil
	}
	server := podresources.New(podresources.Options{
		Dir: filepath.Join(root, plugin.ResourcesDir), Pods: a.pods.Unfinished, Pins: runner.Pins, Claims: runner.Claims, Registry: a.registry,
	})
	return []part{
		{"device plugins", a.dispensable("device plugins", runner.Devices.Run)},
		{"resource drivers", a.dispensable("resource drivers", runner.Claims.Run)},
		{"pod resources", a.dispensable("pod resources", server.Run)},
		{"Pods API", a.dispensable("Pods API", (&podsapi.Server{Dir: filepath.Join(root, plugin.PodsDir), Set: a.pods}).Run)},
		{"plugins", a.followPlugins},
	}
}

// dispensable is a part without which the node runs pods all the same, those that ask for devices excepted.
func (a *Agent) dispensable(name string, run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		err := run(ctx)
		if err != nil && ctx.Err() == nil {
			a.o.Log.Error("a part of the node agent does without", "part", name, "err", err)
			<-ctx.Done()
		}
		return context.Cause(ctx)
	}
}

// keepDevices gives back what pods have for themselves that are not there any more.
func (a *Agent) keepDevices(ctx context.Context, there func(types.UID) bool) {
	a.pods.Runner.Pins.Keep(there)
	a.pods.Runner.Claims.Keep(ctx, there)
}
