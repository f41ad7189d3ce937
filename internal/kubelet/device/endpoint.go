package device

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/types"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/kemudi/kemudi/internal/kubelet/plugin"
	"github.com/kemudi/kemudi/internal/task"
)

// endpoint is one life of a plugin: from a registration to the end of its connection.
type endpoint struct {
	resource, socket string
	conn             *grpc.ClientConn
	api              pluginapi.DevicePluginClient
	options          *pluginapi.DevicePluginOptions
	end              context.CancelCauseFunc // of its life
	ended            context.Context
}

// Why the life of an endpoint ends, unless its plugin does.
var (
	errReplaced     = errors.New("another plugin has registered the resource")
	errDeregistered = errors.New("the plugin's socket is gone")
)

// connect takes on the plugin of a resource that serves at a socket, in the place of the one before.
func (m *Manager) connect(ctx context.Context, name, socket string) error {
	conn, err := plugin.Dial(socket)
	if err != nil {
		return err
	}
	e := &endpoint{resource: name, socket: socket, conn: conn, api: pluginapi.NewDevicePluginClient(conn)}
	call, cancel := context.WithTimeout(ctx, m.waits.connect)
	defer cancel()
	// It may begin to serve a moment after it has registered.
	if e.options, err = e.api.GetDevicePluginOptions(call, &pluginapi.Empty{}, grpc.WaitForReady(true)); err != nil {
		_ = conn.Close() // nothing is sent by it
		return fmt.Errorf("failed to get device plugin options: %w", err)
	}
	// Its life is not the caller's.
	e.ended, e.end = context.WithCancelCause(context.WithoutCancel(ctx))
	m.mu.Lock()
	r := m.mu.resources[name]
	if r == nil {
		r = &resource{}
		m.mu.resources[name] = r
		delete(m.mu.gone, name)
	}
	before := r.by
	r.by, r.serves, r.listed = e, true, false
	m.mu.Unlock()
	if before != nil {
		before.end(errReplaced)
	}
	select {
	case m.lives <- func(ctx context.Context) error { return m.live(ctx, e) }:
	case <-ctx.Done():
		e.end(context.Canceled)
		m.lost(e)
		_ = conn.Close() // nothing is sent by it
		return context.Cause(ctx)
	}
	m.o.Log.Info("device plugin registered", "resource", name, "socket", socket)
	return nil
}

// live follows the devices of a plugin until its end, and forgets its resource if it stays away.
func (m *Manager) live(ctx context.Context, e *endpoint) error {
	stop := context.AfterFunc(ctx, func() { e.end(context.Cause(ctx)) })
	defer stop()
	err := m.follow(e)
	_ = e.conn.Close() // its end is known already
	if ctx.Err() != nil || !m.lost(e) {
		return nil // the agent ends, or another serves the resource
	}
	m.o.Log.Info("device plugin is gone", "resource", e.resource, "err", err)
	return m.awaitReturn(ctx, e.resource, e)
}

// follow takes in the devices of a plugin as often as it tells of them.
func (m *Manager) follow(e *endpoint) error {
	stream, err := e.api.ListAndWatch(e.ended, &pluginapi.Empty{})
	for err == nil {
		var list *pluginapi.ListAndWatchResponse
		if list, err = stream.Recv(); err == nil {
			m.take(e, list.Devices)
		}
	}
	if cause := context.Cause(e.ended); cause != nil {
		return cause
	}
	return fmt.Errorf("list and watch devices: %w", err)
}

// take takes in which devices a plugin has now.
func (m *Manager) take(e *endpoint, list []*pluginapi.Device) {
	now := make(map[string]*pluginapi.Device, len(list))
	for _, d := range list {
		now[d.ID] = d
	}
	m.mu.Lock()
	r := m.mu.resources[e.resource]
	if r == nil || r.by != e {
		m.mu.Unlock()
		return
	}
	changed := m.changedLocked(e.resource, now)
	if !r.listed {
		changed = m.ownersLocked(e.resource, func(string) bool { return true }) // containers may wait for it
	}
	r.devices, r.listed = now, true
	m.mu.Unlock()
	m.tell(changed)
}

// lost notes that the plugin of a resource is gone: what it had cannot be given any more. It reports
// whether that is so, and not another has taken its place.
func (m *Manager) lost(e *endpoint) bool {
	m.mu.Lock()
	r := m.mu.resources[e.resource]
	if r == nil || r.by != e || !r.serves {
		m.mu.Unlock()
		return false
	}
	now := make(map[string]*pluginapi.Device, len(r.devices))
	for id, d := range r.devices {
		now[id] = &pluginapi.Device{ID: id, Health: pluginapi.Unhealthy, Topology: d.Topology}
	}
	changed := m.changedLocked(e.resource, now)
	r.serves, r.devices = false, now
	m.mu.Unlock()
	m.tell(changed)
	return true
}

// awaitReturn forgets the resource that nobody serves, since e has ended (nil: since the agent began), unless
// a plugin registers it in time.
func (m *Manager) awaitReturn(ctx context.Context, name string, e *endpoint) error {
	if err := task.Sleep(ctx, m.waits.absence); err != nil {
		return err
	}
	m.mu.Lock()
	r := m.mu.resources[name]
	forget := r != nil && r.by == e
	if forget {
		delete(m.mu.resources, name)
		m.mu.gone[name] = true
	}
	m.mu.Unlock()
	if !forget {
		return nil
	}
	m.o.Log.Info("device plugin stays away", "resource", name)
	if err := m.Save(); err != nil {
		m.o.Log.Warn("note that a device plugin stays away", "resource", name, "err", err)
	}
	m.o.Changed()
	return nil
}

// tell tells of a change of devices: the node, and the pods that have some of them.
func (m *Manager) tell(pods []types.UID) {
	if err := m.Save(); err != nil {
		m.o.Log.Warn("note which devices there are", "err", err)
	}
	m.o.Changed()
	if len(pods) > 0 {
		m.o.Pods(pods)
	}
}

// changedLocked are the pods that have devices whose health is another among those of now.
func (m *Manager) changedLocked(name string, now map[string]*pluginapi.Device) []types.UID {
	before := m.mu.resources[name].devices
	return m.ownersLocked(name, func(id string) bool { return before[id].GetHealth() != now[id].GetHealth() })
}

// ownersLocked are the pods that have a device of the resource for which is holds.
func (m *Manager) ownersLocked(name string, is func(id string) bool) []types.UID {
	var out []types.UID
	for uid, h := range m.mu.pods {
		for _, of := range h {
			if a := of[name]; a != nil && slices.ContainsFunc(a.ids, is) {
				out = append(out, uid)
				break
			}
		}
	}
	return out
}
