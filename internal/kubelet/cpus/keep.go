package cpus

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/kemudi/kemudi/internal/kubelet/state"
)

// whole is what the pool is when nobody has anything (C3).
func (m *Manager) whole() cpuset.CPUSet {
	if m.o.Rules.Strict {
		return m.o.Machine.All().Difference(m.reserved)
	}
	return m.o.Machine.All()
}

// load takes in what the agent before this one has written down, and refuses what the machine or the settings contradict:
// containers run where that says.
func (m *Manager) load() error {
	file, err := state.ReadCPUs(m.o.Path, Static)
	if err != nil {
		return err
	}
	m.mu.pool = m.whole()
	if file == nil || file.DefaultCPUSet == "" && len(file.Entries) == 0 {
		if m.mu.pool.IsEmpty() {
			return errors.New("all CPUs are reserved strictly: none is left for pods")
		}
		return nil
	}
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%s, please drain this node and delete the CPU manager checkpoint file %q before restarting Kubelet", fmt.Sprintf(format, args...), m.o.Path)
	}
	pool, err := cpuset.Parse(file.DefaultCPUSet)
	if err != nil {
		return bad("could not parse default cpu set %q: %v", file.DefaultCPUSet, err)
	}
	known := pool
	for uid, of := range file.Entries {
		m.mu.pods[types.UID(uid)] = map[string]cpuset.CPUSet{}
		for name, text := range of {
			set, err := cpuset.Parse(text)
			if err != nil {
				return bad("could not parse cpuset %q for container %q in pod %q: %v", text, name, uid, err)
			}
			if !set.Intersection(pool).IsEmpty() {
				return bad("pod: %s, container: %s cpuset: \"%s\" overlaps with default cpuset \"%s\"", uid, name, set, pool)
			}
			known = known.Union(set)
			m.mu.pods[types.UID(uid)][name] = set
		}
	}
	switch {
	case pool.IsEmpty():
		return bad("default cpuset cannot be empty")
	case m.o.Rules.Strict && !m.reserved.Intersection(pool).IsEmpty():
		return bad("some of strictly reserved cpus: \"%s\" are present in defaultCpuSet: \"%s\"", m.reserved.Intersection(pool), pool)
	case !m.o.Rules.Strict && !m.reserved.IsSubsetOf(pool):
		return bad("not all reserved cpus: \"%s\" are present in defaultCpuSet: \"%s\"", m.reserved, pool)
	case !known.Equals(m.whole()):
		return bad("current set of available CPUs \"%s\" doesn't match with CPUs in state \"%s\"", m.whole(), known)
	}
	m.mu.pool = pool
	return nil
}

// Save writes down who has which processors.
func (m *Manager) Save() error {
	if m == nil {
		return nil
	}
	m.saving.Lock()
	defer m.saving.Unlock()
	file := &state.CPUManagerCheckpoint{PolicyName: Static, Entries: map[string]map[string]string{}}
	m.mu.Lock()
	file.DefaultCPUSet = m.mu.pool.String()
	for uid, of := range m.mu.pods {
		file.Entries[string(uid)] = map[string]string{}
		for name, set := range of {
			file.Entries[string(uid)][name] = set.String()
		}
	}
	m.mu.Unlock()
	return file.Write(m.o.Path)
}

// Keep takes back what pods have that are not there any more.
func (m *Manager) Keep(there func(types.UID) bool) {
	if m == nil {
		return
	}
	m.mu.Lock()
	gone := slices.DeleteFunc(slices.Sorted(maps.Keys(m.mu.pods)), there)
	m.mu.Unlock()
	for _, uid := range gone {
		m.Release(uid)
	}
}

// Release takes back the processors of a pod of which nothing runs any more.
func (m *Manager) Release(uid types.UID) {
	if m == nil {
		return
	}
	m.mu.Lock()
	has := m.mu.pods[uid]
	for _, set := range has {
		m.mu.pool = m.mu.pool.Union(set)
	}
	delete(m.mu.pods, uid)
	m.mu.Unlock()
	if has == nil {
		return
	}
	if err := m.Save(); err != nil {
		m.o.Log.Warn("note that a pod has given its processors back", "uid", uid, "err", err)
	}
	m.o.Changed()
}
