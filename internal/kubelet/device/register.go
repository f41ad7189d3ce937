package device

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/kemudi/kemudi/internal/api/core/check"
	"github.com/kemudi/kemudi/internal/kubelet/plugin"
)

// registry takes plugins that are found by their sockets; [Manager.Register] those that call.
type registry struct{ m *Manager }

// Handler takes the device plugins that show their sockets in the node's registry of plugins.
func (m *Manager) Handler() plugin.Handler { return registry{m} }

// Register is what a plugin calls to have its resource known.
func (m *Manager) Register(ctx context.Context, r *pluginapi.RegisterRequest) (*pluginapi.Empty, error) {
	err := m.register(ctx, r)
	if err != nil {
		m.o.Log.Warn("register device plugin", "resource", r.ResourceName, "err", err)
	}
	return &pluginapi.Empty{}, err
}

func (m *Manager) register(ctx context.Context, r *pluginapi.RegisterRequest) error {
	if !slices.Contains(pluginapi.SupportedVersions[:], r.Version) {
		return fmt.Errorf("requested API version %q is not supported by kubelet. Supported version is %q", r.Version, pluginapi.SupportedVersions)
	}
	if !check.IsExtendedResource(v1.ResourceName(r.ResourceName)) {
		return fmt.Errorf("the ResourceName %q is invalid", r.ResourceName)
	}
	if !filepath.IsLocal(r.Endpoint) {
		return fmt.Errorf("the endpoint %q is not in the directory of device plugins", r.Endpoint)
	}
	m.metrics.registered(r.ResourceName)
	return m.connect(ctx, r.ResourceName, filepath.Join(m.o.Dir, r.Endpoint))
}

func (h registry) Register(ctx context.Context, p plugin.Plugin) error {
	if !slices.Contains(p.Versions, pluginapi.Version) {
		return fmt.Errorf("manager version, %s, is not among plugin supported versions %v", pluginapi.Version, p.Versions)
	}
	if !check.IsExtendedResource(v1.ResourceName(p.Name)) {
		return fmt.Errorf("invalid name of device plugin socket: the ResourceName %q is invalid", p.Name)
	}
	h.m.metrics.registered(p.Name)
	return h.m.connect(ctx, p.Name, p.Endpoint)
}

func (h registry) Deregister(p plugin.Plugin) {
	h.m.mu.Lock()
	defer h.m.mu.Unlock()
	if r := h.m.mu.resources[p.Name]; r != nil && r.by != nil && r.by.socket == p.Endpoint {
		r.by.end(errDeregistered)
	}
}
