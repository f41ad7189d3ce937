package device

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/kemudi/kemudi/internal/kubelet/numa"
	"github.com/kemudi/kemudi/internal/kubelet/sequence"
)

// nodesOf are the NUMA nodes that a device is at; 0: it does not matter.
func nodesOf(d *pluginapi.Device) (m numa.Mask) {
	for _, n := range d.GetTopology().GetNodes() {
		m |= numa.MaskOf(int(n.GetID()))
	}
	return m
}

// Hints are the nodes that could give a container its devices.
func (m *Manager) Hints(machine *numa.Machine, pod *v1.Pod, c *v1.Container) numa.Hints {
	if m == nil {
		return nil
	}
	out := numa.Hints{}
	for _, name := range asks(c) {
		q := c.Resources.Limits[v1.ResourceName(name)]
		s := search{machine: machine, resource: name, want: int(q.Value()), reusable: m.reusable(pod, c.Name, name)}
		if a := m.allocation(owner{pod.UID, c.Name, name}); a != nil {
			s.has = a.ids
		}
		m.look(s, out)
	}
	return out
}

// PodHints are the nodes that could give a pod the devices of all its containers.
func (m *Manager) PodHints(machine *numa.Machine, pod *v1.Pod) numa.Hints {
	if m == nil {
		return nil
	}
	out := numa.Hints{}
	for _, c := range sequence.Of(pod) {
		for _, name := range asks(c.Container) {
			if _, done := out[name]; done {
				continue
			}
			m.look(search{machine: machine, resource: name, want: int(sequence.Peak(pod, func(c *v1.Container) int64 {
				q := c.Resources.Limits[v1.ResourceName(name)]
				return q.Value()
			}))}, out)
		}
	}
	return out
}

// search is what nodes are looked for that have enough of.
type search struct {
	machine  *numa.Machine
	resource string
	want     int
	reusable []string // what is to be among it
	has      []string // what the container has already; nil: nothing
}

// look adds the nodes that have enough of a resource, if plugins have it. One whose devices are at no nodes does not care.
func (m *Manager) look(s search, out numa.Hints) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.mu.resources[s.resource]
	if r == nil {
		return
	}
	at := map[string]numa.Mask{}
	for id, d := range r.devices {
		if nodes := nodesOf(d); nodes != 0 {
			at[id] = nodes
		}
	}
	if len(at) == 0 {
		out[s.resource] = nil
		return
	}
	w := m.fillLocked(wish{resource: s.resource, want: s.want, reusable: s.reusable})
	can := slices.Concat(w.free(), w.reused())
	switch {
	case s.has != nil && len(s.has) != s.want:
		can = nil
	case s.has != nil:
		can = s.has
	}
	if len(can) < s.want {
		out[s.resource] = []numa.Hint{}
		return
	}
	near := func(id string, nodes numa.Mask) bool { return at[id]&nodes != 0 }
	out[s.resource] = numa.Generate(s.machine.NodeIDs(), func(nodes numa.Mask) bool {
		n := 0
		for _, id := range can {
			if near(id, nodes) {
				n++
			}
		}
		apart := slices.ContainsFunc(w.reused(), func(id string) bool { return at[id] != 0 && !near(id, nodes) })
		return n >= s.want && !apart
	}, func(nodes numa.Mask) bool {
		n := 0
		for id := range at {
			if near(id, nodes) {
				n++
			}
		}
		return n >= s.want
	})
}
