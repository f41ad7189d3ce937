package memory

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/kubelet/numa"
	"github.com/kemudi/kemudi/internal/kubelet/state"
)

// load takes in what the agent before this one has written down, and refuses what the machine has not got any more: containers that
// run have it.
func (m *Manager) load() error {
	m.mu.taken = assignments{}
	file, err := state.ReadMemory(m.o.Path, Static)
	if err != nil || file == nil {
		return err
	}
	for uid, of := range file.Entries {
		m.mu.taken[types.UID(uid)] = map[string][]block{}
		for name, list := range of {
			var has []block
			for _, b := range list {
				has = append(has, block{b.Type, numa.MaskOf(b.NUMAAffinity...), int64(b.Size)})
			}
			m.mu.taken[types.UID(uid)][name] = has
		}
	}
	for b := range m.mu.taken.blocks {
		taken := m.mu.taken.of(b.nodes, b.kind)
		if b.nodes == 0 || !b.nodes.Within(m.o.Machine.Mask()) || !m.mu.taken.open(b.nodes) || taken > m.bank.of(b.nodes, b.kind) {
			return fmt.Errorf("[memorymanager] the expected machine state is different from the real one: containers have %d bytes of %s of NUMA nodes %s, please drain this node and delete the memory manager checkpoint file %q before restarting Kubelet",
				taken, b.kind, b.nodes, m.o.Path)
		}
	}
	return nil
}

// Save writes down who has which memory.
func (m *Manager) Save() error {
	if m == nil {
		return nil
	}
	m.saving.Lock()
	defer m.saving.Unlock()
	file := &state.MemoryManagerCheckpoint{PolicyName: Static, Entries: state.ContainerMemoryAssignments{}}
	m.mu.Lock()
	for uid, of := range m.mu.taken {
		file.Entries[string(uid)] = map[string][]state.Block{}
		for name, list := range of {
			blocks := []state.Block{}
			for _, b := range list {
				blocks = append(blocks, state.Block{NUMAAffinity: b.nodes.Nodes(), Type: b.kind, Size: uint64(b.size)})
			}
			file.Entries[string(uid)][name] = blocks
		}
	}
	file.MachineState = m.tablesLocked()
	m.mu.Unlock()
	return file.Write(m.o.Path)
}

// tablesLocked are what the nodes have left, in upstream's form: of several together, what is taken is of the first that has it.
func (m *Manager) tablesLocked() state.NUMANodeMap {
	out := state.NUMANodeMap{}
	for _, n := range m.o.Machine.Nodes {
		s := &state.NUMANodeState{MemoryMap: map[v1.ResourceName]*state.MemoryTable{}, Cells: []int{n.ID}}
		for kind, size := range m.bank[n.ID] {
			t := &state.MemoryTable{TotalMemSize: uint64(n.Memory), SystemReserved: uint64(m.o.Reserved[n.ID].of(kind)), Allocatable: uint64(size), Free: uint64(size)}
			if kind != v1.ResourceMemory {
				t.TotalMemSize = uint64(n.HugePages[string(kind[len(v1.ResourceHugePagesPrefix):])])
			}
			s.MemoryMap[kind] = t
		}
		out[n.ID] = s
	}
	for b := range m.mu.taken.blocks {
		left := uint64(b.size)
		for _, node := range b.nodes.Nodes() {
			out[node].NumberOfAssignments++
			out[node].Cells = b.nodes.Nodes()
			if t := out[node].MemoryMap[b.kind]; t != nil {
				n := min(t.Free, left)
				t.Free, t.Reserved, left = t.Free-n, t.Reserved+n, left-n
			}
		}
	}
	return out
}

// Keep takes back what pods have that are not there any more.
func (m *Manager) Keep(there func(types.UID) bool) {
	if m == nil {
		return
	}
	m.mu.Lock()
	gone := slices.DeleteFunc(slices.Sorted(maps.Keys(m.mu.taken)), there)
	m.mu.Unlock()
	for _, uid := range gone {
		m.Release(uid)
	}
}

// Release takes back the memory of a pod of which nothing runs any more.
func (m *Manager) Release(uid types.UID) {
	if m == nil {
		return
	}
	m.mu.Lock()
	_, had := m.mu.taken[uid]
	delete(m.mu.taken, uid)
	m.mu.Unlock()
	if !had {
		return
	}
	if err := m.Save(); err != nil {
		m.o.Log.Warn("note that a pod has given its memory back", "uid", uid, "err", err)
	}
}
