package memory

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/kubelet/numa"
	"github.com/kemudi/kemudi/internal/kubelet/sequence"
)

// The names of the policies.
const (
	None   = "None"
	Static = "Static"
)

// Options of a Manager; all are required.
type Options struct {
	Machine  *numa.Machine
	Reserved Reserved // what of it is not for containers
	// Kept is what is not for pods by other settings: the sums of Reserved must be the same.
	Kept     v1.ResourceList
	Path     string // of the file
	Registry *prometheus.Registry
	Log      *slog.Logger
}

// Manager knows which memory containers have for themselves. Its methods may be called concurrently; those of a nil one say that
// none has any.
type Manager struct {
	o                Options
	bank             bank
	requests, errors prometheus.Counter

	saving sync.Mutex // held while the file is written: of two writes the later state is the last
	mu     struct {
		sync.Mutex
		taken assignments
	}
}

// New returns the memory of a machine as the agent before this one has left it.
func New(o Options) (*Manager, error) {
	if err := o.Reserved.fit(o.Machine, o.Kept); err != nil {
		return nil, err
	}
	m := &Manager{o: o, bank: bank{}}
	for _, n := range o.Machine.Nodes {
		reserved := o.Reserved[n.ID]
		m.bank[n.ID] = amounts{}
		rest := n.Memory - reserved.of(v1.ResourceMemory)
		for size, bytes := range n.HugePages {
			kind := v1.ResourceName(v1.ResourceHugePagesPrefix + size)
			m.bank[n.ID][kind] = max(bytes-reserved.of(kind), 0)
			rest -= bytes
		}
		if rest < 0 {
			return nil, fmt.Errorf("the reserved memory of NUMA node %d, and its huge pages, are bigger than its memory of %d bytes", n.ID, n.Memory)
		}
		m.bank[n.ID][v1.ResourceMemory] = rest
	}
	if err := m.load(); err != nil {
		return nil, err
	}
	m.requests = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "kubelet_memory_manager_pinning_requests_total", Help: "The number of memory pages allocations which required pinning.",
	})
	m.errors = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "kubelet_memory_manager_pinning_errors_total", Help: "The number of memory pages allocations which required pinning that failed.",
	})
	o.Registry.MustRegister(m.requests, m.errors)
	return m, m.Save()
}

// Wants reports whether a container of the pod is to have memory that it has not got.
func (m *Manager) Wants(pod *v1.Pod) bool {
	return m != nil && slices.ContainsFunc(sequence.Of(pod), func(c sequence.Container) bool {
		return len(asked(pod, c.Container)) > 0 && !m.has(pod.UID, c.Name)
	})
}

// Any reports whether a container of the pod has memory for itself.
func (m *Manager) Any(uid types.UID) bool {
	if m == nil {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.mu.taken[uid]) > 0
}

func (m *Manager) has(uid types.UID, container string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.mu.taken[uid][container]
	return ok
}

// What may be wrong, in upstream's words.
var (
	errNone   = errors.New("[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough memory is available")
	errExtend = errors.New("[memorymanager] failed to find NUMA nodes to extend the current topology hint")
)

// Give sets aside what a container asks for, of the nodes, or of those together with more if they have not enough; 0: of any.
// It is written down by [Manager.Save].
func (m *Manager) Give(pod *v1.Pod, c *v1.Container, near numa.Mask) error {
	if m == nil {
		return nil
	}
	want := asked(pod, c)
	if len(want) == 0 || m.has(pod.UID, c.Name) {
		return nil // (N2)
	}
	m.requests.Inc()
	err := m.give(pod, c.Name, want, near)
	if err != nil {
		m.errors.Inc()
	}
	return err
}

func (m *Manager) give(pod *v1.Pod, name string, want amounts, near numa.Mask) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	nodes, err := m.chooseLocked(pod, name, want, near)
	if err != nil {
		return err
	}
	if m.mu.taken[pod.UID] == nil {
		m.mu.taken[pod.UID] = map[string][]block{}
	}
	var has []block
	for _, kind := range want.sorted() {
		b := block{kind, nodes, want[kind]}
		m.mu.taken.takeOver(pod, name, b)
		has = append(has, b)
	}
	m.mu.taken[pod.UID][name] = has
	return nil
}

// chooseLocked returns the nodes that a container gets memory of: those that it is to be near to, if they have enough, else
// the fewest that include them.
func (m *Manager) chooseLocked(pod *v1.Pod, name string, want amounts, near numa.Mask) (numa.Mask, error) {
	list := m.hintsLocked(want, m.leftLocked(pod, name))
	var best *numa.Hint
	for i := range list {
		h := &list[i]
		if !near.Within(h.Nodes) {
			continue
		}
		if h.Nodes == near {
			return near, nil
		}
		if best == nil || h.Preferred && !best.Preferred {
			best = h // those of fewer nodes come first
		}
	}
	switch {
	case best != nil:
		return best.Nodes, nil
	case near != 0:
		return 0, errExtend
	}
	return 0, errNone
}

// wouldDo reports whether the nodes have enough for containers when nobody has anything.
func (m *Manager) wouldDo(want amounts, nodes numa.Mask) bool { return m.bank.have(nodes, want, nil) }

// leftLocked are the assignments that what a container asks for stands beside: all but what it would take over.
func (m *Manager) leftLocked(pod *v1.Pod, name string) assignments {
	handed := m.mu.taken.handed(pod, name)
	if len(handed) == 0 {
		return m.mu.taken
	}
	out := m.mu.taken.without(pod.UID)
	out[pod.UID] = maps.Clone(m.mu.taken[pod.UID])
	for _, c := range sequence.Of(pod) {
		if c.Name == name {
			break
		}
		if c.Ends {
			delete(out[pod.UID], c.Name)
		}
	}
	// Its own nodes are still those that it had: others than these would keep them for nothing.
	for _, b := range handed {
		out[pod.UID][""] = append(out[pod.UID][""], block{b.kind, b.nodes, 0})
	}
	return out
}

// hintsLocked are the nodes that have so much beside what is taken.
func (m *Manager) hintsLocked(want amounts, taken assignments) []numa.Hint {
	return numa.Generate(m.o.Machine.NodeIDs(),
		func(nodes numa.Mask) bool { return taken.open(nodes) && m.bank.have(nodes, want, taken) },
		func(nodes numa.Mask) bool { return m.wouldDo(want, nodes) })
}

// Hints are the nodes that could give a container its memory.
func (m *Manager) Hints(pod *v1.Pod, c *v1.Container) numa.Hints {
	if m == nil {
		return nil
	}
	want := asked(pod, c)
	if len(want) == 0 {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if has, ok := m.mu.taken[pod.UID][c.Name]; ok {
		return again(want, has)
	}
	return named(want, m.hintsLocked(want, m.leftLocked(pod, c.Name)))
}

// PodHints are the nodes that could give a pod the memory of all its containers.
func (m *Manager) PodHints(pod *v1.Pod) numa.Hints {
	if m == nil {
		return nil
	}
	want := askedByPod(pod)
	if len(want) == 0 {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, has := range m.mu.taken[pod.UID] {
		return again(want, has)
	}
	return named(want, m.hintsLocked(want, m.mu.taken))
}

// named are the same nodes for each kind of memory that is asked for.
func named(want amounts, list []numa.Hint) numa.Hints {
	out := numa.Hints{}
	for kind := range want {
		out[string(kind)] = list
	}
	return out
}

// again are the nodes of what is there already.
func again(want amounts, has []block) numa.Hints {
	var nodes numa.Mask
	for _, b := range has {
		nodes |= b.nodes
	}
	return named(want, []numa.Hint{{Nodes: nodes, Preferred: true}})
}

// Nodes are those that a container has memory of; 0: it may have memory of all.
func (m *Manager) Nodes(uid types.UID, container string) (nodes numa.Mask) {
	if m == nil {
		return 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, b := range m.mu.taken[uid][container] {
		nodes |= b.nodes
	}
	return nodes
}

// Part is how much of one kind of memory some nodes have, or a container has of them.
type Part struct {
	Kind  v1.ResourceName
	Nodes []int
	Size  int64
}

// Of is what a container has.
func (m *Manager) Of(uid types.UID, container string) (out []Part) {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, b := range m.mu.taken[uid][container] {
		if b.size > 0 {
			out = append(out, Part{b.kind, b.nodes.Nodes(), b.size})
		}
	}
	return out
}

// Allocatable is what containers can have, or have.
func (m *Manager) Allocatable() (out []Part) {
	if m == nil {
		return nil
	}
	for _, id := range m.o.Machine.NodeIDs() {
		for _, kind := range m.bank[id].sorted() {
			if n := m.bank[id][kind]; n > 0 {
				out = append(out, Part{kind, []int{id}, n})
			}
		}
	}
	return out
}
