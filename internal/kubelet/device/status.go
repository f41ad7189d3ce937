package device

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Node is what the node has of the resources of plugins, and what of it can be given to pods. A resource
// that has been forgotten is there with nothing: so it is not taken for one that others see to.
func (m *Manager) Node() (capacity, allocatable v1.ResourceList) {
	if m == nil {
		return nil, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	capacity, allocatable = v1.ResourceList{}, v1.ResourceList{}
	set := func(name string, all, healthy int) {
		capacity[v1.ResourceName(name)] = *apiresource.NewQuantity(int64(all), apiresource.DecimalSI)
		allocatable[v1.ResourceName(name)] = *apiresource.NewQuantity(int64(healthy), apiresource.DecimalSI)
	}
	for name := range m.mu.gone {
		set(name, 0, 0)
	}
	for name, r := range m.mu.resources {
		healthy := 0
		for _, d := range r.devices {
			if d.Health == pluginapi.Healthy {
				healthy++
			}
		}
		set(name, len(r.devices), healthy)
	}
	return capacity, allocatable
}

// Health is how the devices of a pod's containers are, by container; nil: it has none.
func (m *Manager) Health(uid types.UID) map[string][]v1.ResourceStatus {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.pods[uid] == nil {
		return nil
	}
	out := map[string][]v1.ResourceStatus{}
	for container, of := range m.mu.pods[uid] {
		for _, name := range slices.Sorted(maps.Keys(of)) {
			s := v1.ResourceStatus{Name: v1.ResourceName(name)}
			for _, id := range of[name].ids {
				health := v1.ResourceHealthStatusHealthy
				if r := m.mu.resources[name]; r != nil && r.devices[id] != nil && r.devices[id].Health != pluginapi.Healthy {
					health = v1.ResourceHealthStatusUnhealthy
				}
				s.Resources = append(s.Resources, v1.ResourceHealth{ResourceID: v1.ResourceID(id), Health: health})
			}
			out[container] = append(out[container], s)
		}
	}
	return out
}

// Device is one device of a resource.
type Device struct {
	Resource, ID string
	Nodes        []int64 // NUMA nodes that it is at
}

// Of are the devices that a container has.
func (m *Manager) Of(uid types.UID, container string) []Device {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Device
	of := m.mu.pods[uid][container]
	for _, name := range slices.Sorted(maps.Keys(of)) {
		for _, id := range of[name].ids {
			d := Device{Resource: name, ID: id}
			for _, node := range slices.Sorted(maps.Keys(of[name].nodes)) {
				if node >= 0 && slices.Contains(of[name].nodes[node], id) {
					d.Nodes = append(d.Nodes, node)
				}
			}
			out = append(out, d)
		}
	}
	return out
}

// Allocatable are the devices that can be given to pods, or have been.
func (m *Manager) Allocatable() []Device {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Device
	for _, name := range slices.Sorted(maps.Keys(m.mu.resources)) {
		devices := m.mu.resources[name].devices
		for _, id := range slices.Sorted(maps.Keys(devices)) {
			if devices[id].Health != pluginapi.Healthy {
				continue
			}
			d := Device{Resource: name, ID: id}
			for _, n := range devices[id].GetTopology().GetNodes() {
				d.Nodes = append(d.Nodes, n.GetID())
			}
			out = append(out, d)
		}
	}
	return out
}
