package dra

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	healthpb "k8s.io/kubelet/pkg/apis/dra-health/v1"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	drabeta "k8s.io/kubelet/pkg/apis/dra/v1beta1"

	"github.com/kemudi/kemudi/internal/kubelet/plugin"
)

// services are those of drivers that the node speaks, the newest first.
var services = []string{drapb.DRAPluginService, drabeta.DRAPluginService}

// driver is one plugin of a driver, of which there may be several while a new one takes the place of an old one.
type driver struct {
	name, endpoint string
	conn           *grpc.ClientConn
	api            drapb.DRAPluginClient
	health         healthpb.DRAResourceHealthClient // nil: it does not tell
	connected      bool                             // guarded by Manager.mu
	end            context.CancelFunc
	ended          context.Context
}

// registry takes drivers that are found by their sockets.
type registry struct{ m *Manager }

// Handler takes the drivers that show their sockets in the node's registry of plugins.
func (m *Manager) Handler() plugin.Handler { return registry{m} }

func (h registry) Register(ctx context.Context, p plugin.Plugin) error {
	service, err := choose(p.Versions)
	if err != nil {
		return fmt.Errorf("invalid supported gRPC versions of DRA driver plugin %s at endpoint %s: %w", p.Name, p.Endpoint, err)
	}
	if p.Name == "" {
		return errors.New("DRA driver name is empty")
	}
	conn, err := plugin.Dial(p.Endpoint)
	if err != nil {
		return fmt.Errorf("create gRPC connection to DRA driver %s plugin at endpoint %s: %w", p.Name, p.Endpoint, err)
	}
	d := &driver{name: p.Name, endpoint: p.Endpoint, conn: conn, api: drapb.NewDRAPluginClient(conn), health: healthClient(conn, p.Versions)}
	if service == drabeta.DRAPluginService {
		d.api = drabeta.V1Beta1ClientWrapper{DRAPluginClient: drabeta.NewDRAPluginClient(conn)}
	}
	d.ended, d.end = context.WithCancel(context.WithoutCancel(ctx)) // its life is not the caller's
	if err := h.m.add(d); err != nil {
		return errors.Join(err, conn.Close())
	}
	if err := h.m.begin(ctx, life{"resource driver", func(ctx context.Context) error { return h.m.live(ctx, d) }}); err != nil {
		d.end()
		h.m.remove(d)
		return errors.Join(err, conn.Close())
	}
	if d.health != nil {
		if err := h.m.begin(ctx, life{"health of devices", func(context.Context) error { return h.m.watchHealth(d) }}); err != nil {
			return err
		}
	}
	h.m.o.Log.Info("resource driver registered", "driver", d.name, "socket", d.endpoint, "service", service)
	return nil
}

func (h registry) Deregister(p plugin.Plugin) {
	h.m.mu.Lock()
	defer h.m.mu.Unlock()
	for _, d := range h.m.mu.drivers[p.Name] {
		if d.endpoint == p.Endpoint {
			d.end()
		}
	}
}

// choose returns the service that a driver is asked by, of those that it has.
func choose(has []string) (string, error) {
	if len(has) == 0 {
		return "", errors.New("empty list of supported gRPC services (aka supported versions)")
	}
	for _, s := range services {
		if slices.Contains(has, s) {
			return s, nil
		}
	}
	return "", fmt.Errorf("none of services supported by the plugin (%q) are supported by the kubelet (%q)", has, services)
}

func (m *Manager) add(d *driver) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if slices.ContainsFunc(m.mu.drivers[d.name], func(o *driver) bool { return o.endpoint == d.endpoint && o.ended.Err() == nil }) {
		return fmt.Errorf("endpoint %s already registered for DRA driver plugin %s", d.endpoint, d.name)
	}
	m.mu.drivers[d.name] = append(m.mu.drivers[d.name], d)
	return nil
}

func (m *Manager) remove(d *driver) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.drivers[d.name] = slices.DeleteFunc(m.mu.drivers[d.name], func(o *driver) bool { return o == d })
	if len(m.mu.drivers[d.name]) == 0 {
		delete(m.mu.drivers, d.name)
	}
}

// live follows whether a driver can be asked until it is gone. Nothing is asked for that: it is the
// connection that tells.
func (m *Manager) live(ctx context.Context, d *driver) error {
	stop := context.AfterFunc(ctx, d.end)
	defer stop()
	for d.ended.Err() == nil {
		state := d.conn.GetState()
		m.setConnected(ctx, d, state == connectivity.Ready)
		if state == connectivity.Idle {
			d.conn.Connect()
		}
		d.conn.WaitForStateChange(d.ended, state)
	}
	m.remove(d)
	_ = d.conn.Close() // its end is known already
	if ctx.Err() == nil {
		m.o.Log.Info("resource driver is gone", "driver", d.name, "socket", d.endpoint)
		m.watchSlices(ctx, d.name)
	}
	return nil
}

func (m *Manager) setConnected(ctx context.Context, d *driver, connected bool) {
	m.mu.Lock()
	was := d.connected
	d.connected = connected
	m.mu.Unlock()
	m.watchSlices(ctx, d.name)
	if connected && !was {
		m.o.Changed()
	}
}

// find returns the plugin of a driver that is to be asked: the newest one that answers.
func (m *Manager) find(name string) (*driver, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := m.mu.drivers[name]
	if len(list) == 0 {
		return nil, fmt.Errorf("DRA driver %s is not registered", name)
	}
	for _, d := range slices.Backward(list) {
		if d.connected {
			return d, nil
		}
	}
	return list[len(list)-1], nil
}

// prepare asks the driver to make claims ready.
func (m *Manager) prepare(ctx context.Context, d *driver, claims []*drapb.Claim) (*drapb.NodePrepareResourcesResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, m.waits.call)
	defer cancel()
	began := time.Now()
	resp, err := d.api.NodePrepareResources(ctx, &drapb.NodePrepareResourcesRequest{Claims: claims})
	m.metrics.called(d.name, drapb.DRAPlugin_NodePrepareResources_FullMethodName, began, err)
	return resp, err
}

// unprepare asks the driver to take that back.
func (m *Manager) unprepare(ctx context.Context, d *driver, claims []*drapb.Claim) (*drapb.NodeUnprepareResourcesResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, m.waits.call)
	defer cancel()
	began := time.Now()
	resp, err := d.api.NodeUnprepareResources(ctx, &drapb.NodeUnprepareResourcesRequest{Claims: claims})
	m.metrics.called(d.name, drapb.DRAPlugin_NodeUnprepareResources_FullMethodName, began, err)
	return resp, err
}
