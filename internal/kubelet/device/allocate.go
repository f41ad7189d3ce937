package device

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/kemudi/kemudi/internal/kubelet/device/checkpoint"
	"github.com/kemudi/kemudi/internal/kubelet/numa"
	"github.com/kemudi/kemudi/internal/kubelet/sequence"
)

// asks lists what a container asks of extended resources, sorted. Their limits say it: they cannot be
// overcommitted.
func asks(c *v1.Container) []string {
	var out []string
	for name, q := range c.Resources.Limits {
		if strings.Contains(string(name), "/") && !q.IsZero() {
			out = append(out, string(name))
		}
	}
	slices.Sort(out)
	return out
}

// Manages reports whether plugins, and so not the sums of what pods ask for, decide who gets
// something of the resource.
func (m *Manager) Manages(name v1.ResourceName) bool {
	if m == nil || !strings.Contains(string(name), "/") {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.managesLocked(string(name))
}

func (m *Manager) managesLocked(name string) bool {
	return m.mu.resources[name] != nil || len(m.ownersLocked(name, func(string) bool { return true })) > 0
}

// Wants reports whether a pod asks for devices that it has not got.
func (m *Manager) Wants(pod *v1.Pod) bool {
	if m == nil {
		return false
	}
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			for _, name := range asks(&list[i]) {
				if m.Manages(v1.ResourceName(name)) && m.allocation(owner{pod.UID, list[i].Name, name}) == nil {
					return true
				}
			}
		}
	}
	return false
}

// owner is who has, or is to have, something of a resource.
type owner struct {
	pod                 types.UID
	container, resource string
}

func (m *Manager) allocation(o owner) *allocation {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.pods[o.pod][o.container][o.resource]
}

// Give gives a container the devices that it asks for, near to the nodes if that can be (0: anywhere), and reports whether it had
// not got all of them. They are written down by [Manager.Save]; if it fails, the pod is to be released.
func (m *Manager) Give(ctx context.Context, pod *v1.Pod, c *v1.Container, near numa.Mask) (fresh bool, err error) {
	if m == nil {
		return false, nil
	}
	for _, name := range asks(c) {
		o := owner{pod.UID, c.Name, name}
		q := c.Resources.Limits[v1.ResourceName(name)]
		a, e, err := m.pick(ctx, o, wish{resource: name, want: int(q.Value()), reusable: m.reusable(pod, c.Name, name), near: near})
		if err != nil {
			return false, err
		}
		if a == nil {
			continue
		}
		fresh = true
		began := time.Now()
		answer, err := m.ask(ctx, e, a.ids)
		m.metrics.allocated(name, began)
		if err != nil {
			m.drop(o, a)
			return false, err
		}
		m.mu.Lock()
		a.answer = answer
		m.mu.Unlock()
	}
	return fresh, nil
}

// reusable is what a container may take over of a resource: what those before it have had that have ended, unless others before it
// have taken it over (V1).
func (m *Manager) reusable(pod *v1.Pod, container, resource string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []string
	for _, c := range sequence.Of(pod) {
		if c.Name == container {
			break
		}
		a := m.mu.pods[pod.UID][c.Name][resource]
		if a == nil {
			continue
		}
		out = slices.DeleteFunc(out, func(id string) bool { return slices.Contains(a.ids, id) })
		if c.Ends {
			out = append(out, a.ids...)
		}
	}
	return out
}

// pick decides which devices the container gets, and puts them down as its own before the plugin is
// asked (V1). Nil: it has them, or no plugin has the resource.
func (m *Manager) pick(ctx context.Context, o owner, w wish) (*allocation, *endpoint, error) {
	m.mu.Lock()
	r, has, err := m.lookLocked(o, w)
	if r == nil || has || err != nil {
		m.mu.Unlock()
		return nil, nil, err
	}
	w = m.fillLocked(w)
	e := r.by
	m.mu.Unlock()
	if e.options.GetGetPreferredAllocationAvailable() && len(w.healthy) > 0 && len(w.reused()) < w.want && len(w.reused())+len(w.free()) >= w.want {
		if w.prefer, err = m.preferred(ctx, e, w); err != nil {
			return nil, nil, err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if r, has, err = m.lookLocked(o, w); r == nil || has || err != nil { // meanwhile
		return nil, nil, err
	}
	ids, err := choose(m.fillLocked(w))
	if err != nil {
		return nil, nil, err
	}
	a := &allocation{ids: ids, nodes: perNUMA(ids, r.devices)}
	if m.mu.pods[o.pod] == nil {
		m.mu.pods[o.pod] = held{}
	}
	if m.mu.pods[o.pod][o.container] == nil {
		m.mu.pods[o.pod][o.container] = map[string]*allocation{}
	}
	m.mu.pods[o.pod][o.container][o.resource] = a
	return a, r.by, nil
}

// lookLocked finds the resource that is asked for, nil if it is no plugin's, and whether the
// container has what it asks for.
func (m *Manager) lookLocked(o owner, w wish) (r *resource, has bool, err error) {
	if !m.managesLocked(o.resource) {
		return nil, false, nil
	}
	a := m.mu.pods[o.pod][o.container][o.resource]
	if a != nil && len(a.ids) != w.want {
		return nil, false, fmt.Errorf("pod %q container %q changed request for resource %q from %d to %d", o.pod, o.container, o.resource, len(a.ids), w.want)
	}
	if r = m.mu.resources[o.resource]; a == nil && (r == nil || r.by == nil) {
		return nil, false, fmt.Errorf("cannot allocate unregistered device %s", o.resource)
	}
	return r, a != nil, nil
}

// fillLocked completes a wish by what there is.
func (m *Manager) fillLocked(w wish) wish {
	w.healthy, w.used, w.nearby = nil, nil, nil
	for id, d := range m.mu.resources[w.resource].devices {
		if d.Health != pluginapi.Healthy {
			continue
		}
		w.healthy = append(w.healthy, id)
		if nodesOf(d)&w.near != 0 {
			w.nearby = append(w.nearby, id)
		}
	}
	slices.Sort(w.healthy)
	for _, h := range m.mu.pods {
		for _, of := range h {
			if a := of[w.resource]; a != nil {
				w.used = append(w.used, a.ids...)
			}
		}
	}
	return w
}

// drop takes back what has not been given in the end.
func (m *Manager) drop(o owner, a *allocation) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if of := m.mu.pods[o.pod][o.container]; of[o.resource] == a {
		delete(of, o.resource)
	}
}

// preferred asks the plugin which of the free devices it would rather give.
func (m *Manager) preferred(ctx context.Context, e *endpoint, w wish) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, m.waits.allocate)
	defer cancel()
	must := w.reused()
	resp, err := e.api.GetPreferredAllocation(ctx, &pluginapi.PreferredAllocationRequest{ContainerRequests: []*pluginapi.ContainerPreferredAllocationRequest{{
		AvailableDeviceIDs: slices.Concat(w.offered(), must), MustIncludeDeviceIDs: must, AllocationSize: int32(w.want),
	}}})
	if err != nil {
		return nil, fmt.Errorf("device plugin GetPreferredAllocation rpc failed with err: %w", err)
	}
	if len(resp.ContainerResponses) == 0 {
		return nil, nil
	}
	return resp.ContainerResponses[0].GetDeviceIDs(), nil
}

// ask has the plugin prepare devices for a container (V3).
func (m *Manager) ask(ctx context.Context, e *endpoint, ids []string) (*pluginapi.ContainerAllocateResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, m.waits.allocate)
	defer cancel()
	resp, err := e.api.Allocate(ctx, &pluginapi.AllocateRequest{ContainerRequests: []*pluginapi.ContainerAllocateRequest{{DevicesIds: ids}}})
	if err != nil {
		return nil, err // as the plugin has said it
	}
	if len(resp.ContainerResponses) == 0 || resp.ContainerResponses[0] == nil {
		return nil, fmt.Errorf("no containers return in allocation response %v", resp)
	}
	return resp.ContainerResponses[0], nil
}

// perNUMA sorts devices by their nodes; one that is at several is in each.
func perNUMA(ids []string, devices map[string]*pluginapi.Device) checkpoint.DevicesPerNUMA {
	out := checkpoint.DevicesPerNUMA{}
	for _, id := range ids {
		nodes := devices[id].GetTopology().GetNodes()
		if len(nodes) == 0 {
			out[checkpoint.NoNUMA] = append(out[checkpoint.NoNUMA], id)
		}
		for _, n := range nodes {
			if at := n.GetID(); !slices.Contains(out[at], id) {
				out[at] = append(out[at], id)
			}
		}
	}
	return out
}

// idsOf is the opposite of perNUMA.
func idsOf(nodes checkpoint.DevicesPerNUMA) []string {
	ids := slices.Concat(slices.Collect(maps.Values(nodes))...)
	slices.Sort(ids)
	return slices.Compact(ids)
}
