package cpus

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/kubelet/numa"
	"github.com/kemudi/kemudi/internal/kubelet/sequence"
)

// Options of a Manager. All but Rules, Reserved and Aligned are required.
type Options struct {
	Machine *numa.Machine
	Rules   Rules
	// Reserve is how many processors no container has for itself, Reserved which they are; empty: the lowest cores.
	Reserve  int
	Reserved cpuset.CPUSet
	// Aligned is the policy by which resources are aligned.
	Aligned string
	Path    string // of the file
	// Changed is told that the shared pool is another one. It must not block.
	Changed    func()
	Alignments *numa.Alignments
	Registry   *prometheus.Registry
	Log        *slog.Logger
}

// Manager knows which processors containers have for themselves. Its methods may be called concurrently; those of a nil one say
// that none has any.
type Manager struct {
	o        Options
	reserved cpuset.CPUSet
	metrics  *metrics

	saving sync.Mutex // held while the file is written: of two writes the later state is the last
	mu     struct {
		sync.Mutex
		pool cpuset.CPUSet // what is shared
		pods map[types.UID]map[string]cpuset.CPUSet
	}
}

// New returns the processors of a machine as the agent before this one has left them.
func New(o Options) (*Manager, error) {
	if o.Reserve <= 0 {
		return nil, errors.New("the static policy requires systemreserved.cpu + kubereserved.cpu to be greater than zero")
	}
	if err := o.Rules.fits(o.Machine, o.Aligned); err != nil {
		return nil, err
	}
	m := &Manager{o: o, reserved: o.Reserved}
	if o.Reserved.IsEmpty() {
		m.reserved, _ = o.Rules.take(o.Machine, o.Machine.All(), o.Reserve)
	}
	if m.reserved.Size() != o.Reserve || !m.reserved.IsSubsetOf(o.Machine.All()) {
		return nil, fmt.Errorf("unable to reserve the required amount of CPUs (size of %s did not equal %d, or they are not online: %s)", m.reserved, o.Reserve, o.Machine.All())
	}
	m.mu.pods = map[types.UID]map[string]cpuset.CPUSet{}
	if err := m.load(); err != nil {
		return nil, err
	}
	m.metrics = newMetrics(m)
	return m, m.Save()
}

// Count is how many processors a container is to have for itself: where its pod is guaranteed what it asks for, and that is a
// whole number.
func Count(pod *v1.Pod, c *v1.Container) int {
	if pod.Spec.Resources != nil || core.QOSClass(pod) != v1.PodQOSGuaranteed {
		return 0
	}
	q := c.Resources.Requests[v1.ResourceCPU]
	if q.Value()*1000 != q.MilliValue() {
		return 0
	}
	return int(q.Value())
}

// Wants reports whether a container of the pod is to have processors that it has not got.
func (m *Manager) Wants(pod *v1.Pod) bool {
	return m != nil && slices.ContainsFunc(sequence.Of(pod), func(c sequence.Container) bool {
		return Count(pod, c.Container) > 0 && m.Of(pod.UID, c.Name).IsEmpty()
	})
}

// reusableLocked are the processors that a container may take over from those before it (C1).
func (m *Manager) reusableLocked(pod *v1.Pod, name string) cpuset.CPUSet {
	out := cpuset.New()
	for _, c := range sequence.Of(pod) {
		if c.Name == name {
			break
		}
		has := m.mu.pods[pod.UID][c.Name]
		if c.Ends {
			out = out.Union(has)
		} else {
			out = out.Difference(has)
		}
	}
	return out
}

// Give gives a container the processors that it is to have, near to the nodes if that can be; 0: anywhere. It is written
// down by [Manager.Save].
func (m *Manager) Give(pod *v1.Pod, c *v1.Container, near numa.Mask) error {
	if m == nil {
		return nil
	}
	want := Count(pod, c)
	if want == 0 {
		return nil
	}
	m.metrics.requests.Inc()
	got, err := m.give(pod, c, wish{want, near})
	if err != nil {
		m.metrics.errors.Inc()
		return err
	}
	m.count(got)
	m.o.Changed()
	return nil
}

// wish is what a container is to have.
type wish struct {
	count int
	near  numa.Mask
}

func (m *Manager) give(pod *v1.Pod, c *v1.Container, w wish) (cpuset.CPUSet, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if has, ok := m.mu.pods[pod.UID][c.Name]; ok {
		return has, nil // (C2)
	}
	reusable := m.reusableLocked(pod, c.Name)
	free, near := m.freeLocked(), m.o.Machine.All()
	if err := m.wholeCores(w.count, free.Union(reusable)); err != nil {
		m.o.Alignments.Cores(false)
		return cpuset.New(), err
	}
	if w.near != 0 {
		near = m.nearby(w.near)
	}
	// What is taken over comes first: what is not is nobody's until the pod ends.
	got := cpuset.New()
	for _, from := range []cpuset.CPUSet{reusable.Intersection(near), reusable, free.Intersection(near)} {
		from = from.Difference(got)
		some, _ := m.o.Rules.take(m.o.Machine, from, min(w.count-got.Size(), from.Size()))
		got = got.Union(some)
	}
	rest, err := m.o.Rules.take(m.o.Machine, free.Union(reusable).Difference(got), w.count-got.Size())
	if err != nil {
		return got, fmt.Errorf("not enough cpus available to satisfy request: requested=%d, available=%d", w.count, free.Union(reusable).Size())
	}
	got = got.Union(rest)
	if m.mu.pods[pod.UID] == nil {
		m.mu.pods[pod.UID] = map[string]cpuset.CPUSet{}
	}
	m.mu.pods[pod.UID][c.Name] = got
	m.mu.pool = m.mu.pool.Difference(got)
	return got, nil
}

// nearby are the processors of nodes, or of their sockets, where these are near enough.
func (m *Manager) nearby(nodes numa.Mask) cpuset.CPUSet {
	in := m.o.Machine.In(nodes)
	if !m.o.Rules.BySocket {
		return in
	}
	sockets := map[int]bool{}
	for _, id := range in.UnsortedList() {
		sockets[m.o.Machine.CPUs[id].Socket] = true
	}
	return m.o.Machine.Where(func(c numa.CPU) bool { return sockets[c.Socket] })
}

// freeLocked are the processors that can be given. Where only whole cores are, one of which a processor is reserved is none.
func (m *Manager) freeLocked() cpuset.CPUSet {
	free := m.mu.pool.Difference(m.reserved)
	if !m.o.Rules.FullCores {
		return free
	}
	broken := map[int]bool{}
	for _, id := range m.reserved.UnsortedList() {
		broken[m.o.Machine.CPUs[id].Core] = true
	}
	return free.Difference(m.o.Machine.Where(func(c numa.CPU) bool { return broken[c.Core] }))
}

// wholeCores refuses what whole cores cannot make up of what is free.
func (m *Manager) wholeCores(want int, free cpuset.CPUSet) error {
	if !m.o.Rules.FullCores {
		return nil
	}
	per := m.o.Machine.PerCore()
	if want%per != 0 {
		return &Misaligned{fmt.Sprintf("SMT Alignment Error: requested %d cpus not multiple cpus per core = %d", want, per)}
	}
	if free.Size() < want {
		return &Misaligned{fmt.Sprintf("SMT Alignment Error: not enough free physical CPUs: available physical CPUs = %d, requested CPUs = %d, CPUs per core = %d", free.Size(), want, per)}
	}
	return nil
}

// Misaligned says that whole cores cannot make up what a container asks for.
type Misaligned struct{ text string }

func (e *Misaligned) Error() string { return e.text }

// Reason is that of a pod which is rejected for it.
func (e *Misaligned) Reason() string { return "SMTAlignmentError" }

// Hints are the nodes that could give a container its processors.
func (m *Manager) Hints(pod *v1.Pod, c *v1.Container) numa.Hints {
	if m == nil {
		return nil
	}
	want := Count(pod, c)
	if want == 0 {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if has, ok := m.mu.pods[pod.UID][c.Name]; ok {
		return m.hints(want, has, cpuset.New(), has.Size() == want)
	}
	return m.hints(want, m.freeLocked(), m.reusableLocked(pod, c.Name), true)
}

// PodHints are the nodes that could give a pod the processors of all its containers.
func (m *Manager) PodHints(pod *v1.Pod) numa.Hints {
	if m == nil {
		return nil
	}
	want := int(sequence.Peak(pod, func(c *v1.Container) int64 { return int64(Count(pod, c)) }))
	if want == 0 {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	has, good := cpuset.New(), true
	for _, c := range sequence.Of(pod) {
		if set, ok := m.mu.pods[pod.UID][c.Name]; ok {
			has, good = has.Union(set), good && set.Size() == Count(pod, c.Container)
		}
	}
	if has.Size() == want {
		return m.hints(want, has, cpuset.New(), good)
	}
	return m.hints(want, m.freeLocked(), has, good)
}

// hints are the nodes that have so many of the free processors and all that are to be taken over. Not good: what there is
// is not what is asked for.
func (m *Manager) hints(want int, free, reused cpuset.CPUSet, good bool) numa.Hints {
	name := string(v1.ResourceCPU)
	if !good {
		return numa.Hints{name: {}}
	}
	free = free.Difference(reused)
	within := m.o.Machine.MaskOf(reused)
	in := func(set cpuset.CPUSet, nodes numa.Mask) (n int) {
		for _, id := range set.UnsortedList() {
			if nodes.Has(m.o.Machine.CPUs[id].Node) {
				n++
			}
		}
		return n
	}
	all := m.o.Machine.All()
	list := numa.Generate(m.o.Machine.NodeIDs(),
		func(nodes numa.Mask) bool { return within.Within(nodes) && reused.Size()+in(free, nodes) >= want },
		func(nodes numa.Mask) bool { return in(all, nodes) >= want })
	if m.o.Rules.BySocket {
		m.preferSockets(list, want)
	}
	return numa.Hints{name: list}
}

// preferSockets prefers hints by the sockets that their nodes are on: no more of these than would ever be needed.
func (m *Manager) preferSockets(list []numa.Hint, want int) {
	sockets := func(nodes numa.Mask) int {
		seen := map[int]bool{}
		for _, id := range m.o.Machine.In(nodes).UnsortedList() {
			seen[m.o.Machine.CPUs[id].Socket] = true
		}
		return len(seen)
	}
	least := m.o.Machine.Count(socketOf)
	for nodes := range numa.Masks(m.o.Machine.NodeIDs()) {
		if m.o.Machine.In(nodes).Size() >= want {
			least = min(least, sockets(nodes))
		}
	}
	for i := range list {
		list[i].Preferred = sockets(list[i].Nodes) == least
	}
}

// Of are the processors that a container has for itself.
func (m *Manager) Of(uid types.UID, container string) cpuset.CPUSet {
	if m == nil {
		return cpuset.New()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.pods[uid][container]
}

// Any reports whether a container of the pod has processors for itself.
func (m *Manager) Any(uid types.UID) bool {
	if m == nil {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.mu.pods[uid]) > 0
}

// Set are the processors that a container runs on: its own, or those of the shared pool. Empty: it may run on all.
func (m *Manager) Set(uid types.UID, container string) cpuset.CPUSet {
	if m == nil {
		return cpuset.New()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if set, ok := m.mu.pods[uid][container]; ok {
		return set
	}
	return m.mu.pool
}

// Allocatable are the processors that containers can have for themselves, or have.
func (m *Manager) Allocatable() cpuset.CPUSet {
	if m == nil {
		return cpuset.New()
	}
	return m.o.Machine.All().Difference(m.reserved)
}
