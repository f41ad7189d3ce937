package numa

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/cpuset"
)

// Top is where the kernel shows what is near to what.
const Top = "/sys/devices/system"

// Machine is which processors and which memory are near to each other.
type Machine struct {
	CPUs  map[int]CPU // those that are online, by number
	Nodes []Node      // by ID
}

// CPU is where one processor is, as the kernel counts them: a thread. Numbers of cores and of caches are those of the lowest of
// their processors, and so good for the whole machine.
type CPU struct{ Core, Cache, Socket, Node int }

// Node is a NUMA node.
type Node struct {
	ID        int
	Memory    int64            // bytes, huge pages included
	HugePages map[string]int64 // bytes set aside for them, by size as in names of resources: "2Mi"
	Distances map[int]int      // to other nodes and itself, as the firmware says; nil: it says nothing
}

// Read looks at the machine that is shown below top. One that knows of no NUMA nodes has a single one, number 0, with so much
// memory.
func Read(top string, memory int64) (*Machine, error) {
	m := &Machine{CPUs: map[int]CPU{}}
	online, err := readSet(filepath.Join(top, "cpu/online"))
	if err != nil {
		return nil, fmt.Errorf("look which processors there are: %w", err)
	}
	for _, id := range online.UnsortedList() {
		if m.CPUs[id], err = readCPU(filepath.Join(top, "cpu", "cpu"+strconv.Itoa(id)), id, online); err != nil {
			return nil, fmt.Errorf("look where processor %d is: %w", id, err)
		}
	}
	dirs, err := filepath.Glob(filepath.Join(top, "node/node[0-9]*"))
	if err != nil {
		return nil, fmt.Errorf("look which NUMA nodes there are: %w", err)
	}
	for _, dir := range dirs {
		if err := m.addNode(dir); err != nil {
			return nil, fmt.Errorf("look at NUMA node %s: %w", filepath.Base(dir), err)
		}
	}
	if len(m.Nodes) == 0 {
		m.Nodes = []Node{{Memory: memory, HugePages: hugePages("/sys/kernel/mm/hugepages")}}
	}
	slices.SortFunc(m.Nodes, func(a, b Node) int { return cmp.Compare(a.ID, b.ID) })
	return m, nil
}

// readCPU finds out where a processor is. What virtual machines do not show is as if each were its own core in
// one socket.
func readCPU(dir string, id int, online cpuset.CPUSet) (CPU, error) {
	c := CPU{Core: id}
	socket, err := readNumber(filepath.Join(dir, "topology/physical_package_id"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return c, err
	}
	c.Socket = max(socket, 0)
	lowest := func(file string, or int) (int, error) {
		set, err := readSet(filepath.Join(dir, file))
		if errors.Is(err, fs.ErrNotExist) {
			return or, nil
		}
		if set = set.Intersection(online); err != nil || set.IsEmpty() {
			return or, err
		}
		return set.List()[0], nil
	}
	if c.Core, err = lowest("topology/thread_siblings_list", id); err != nil {
		return c, err
	}
	// Without a cache that cores share, a socket is one.
	c.Cache = -1 - c.Socket
	caches, err := filepath.Glob(filepath.Join(dir, "cache/index[0-9]*"))
	if err != nil {
		return c, err
	}
	for _, cache := range caches {
		if level, err := readNumber(filepath.Join(cache, "level")); err != nil || level != 3 {
			continue
		}
		if c.Cache, err = lowest(filepath.Join("cache", filepath.Base(cache), "shared_cpu_list"), c.Cache); err != nil {
			return c, err
		}
	}
	return c, nil
}

// addNode adds the NUMA node of a directory, and says of its processors that they are there.
func (m *Machine) addNode(dir string) error {
	id, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(dir), "node"))
	if err != nil {
		return nil // something else
	}
	if id > MaxNode {
		return fmt.Errorf("its number is greater than %d", MaxNode)
	}
	n := Node{ID: id, HugePages: hugePages(filepath.Join(dir, "hugepages"))}
	cpus, err := readSet(filepath.Join(dir, "cpulist"))
	if err != nil {
		return err
	}
	for _, cpu := range cpus.UnsortedList() {
		if c, ok := m.CPUs[cpu]; ok {
			c.Node = id
			m.CPUs[cpu] = c
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "meminfo"))
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) { // Node 0 MemTotal: 16 kB
		words := strings.Fields(line)
		if len(words) < 4 || words[2] != "MemTotal:" {
			continue
		}
		kb, err := strconv.ParseInt(words[3], 10, 64)
		if err != nil {
			return err
		}
		n.Memory = kb << 10
	}
	if n.Distances, err = distances(dir); err != nil {
		return err
	}
	m.Nodes = append(m.Nodes, n)
	return nil
}

// distances are how far the nodes are from one: the file has them in the order of those that are online.
func distances(dir string) (map[int]int, error) {
	text, err := os.ReadFile(filepath.Join(dir, "distance"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	words := strings.Fields(string(text))
	others, err := readSet(filepath.Join(filepath.Dir(dir), "online"))
	if errors.Is(err, fs.ErrNotExist) || err == nil && others.Size() != len(words) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	out := map[int]int{}
	for i, node := range others.List() {
		if out[node], err = strconv.Atoi(words[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// hugePages are the bytes set aside for huge pages, by size.
func hugePages(dir string) map[string]int64 {
	out := map[string]int64{}
	sizes, err := filepath.Glob(filepath.Join(dir, "hugepages-*kB"))
	if err != nil {
		return out
	}
	for _, size := range sizes {
		kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimPrefix(filepath.Base(size), "hugepages-"), "kB"), 10, 64)
		if err != nil {
			continue
		}
		n, err := readNumber(filepath.Join(size, "nr_hugepages"))
		if err != nil {
			continue
		}
		out[resource.NewQuantity(kb<<10, resource.BinarySI).String()] = int64(n) * kb << 10
	}
	return out
}

func readSet(path string) (cpuset.CPUSet, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return cpuset.New(), err
	}
	return cpuset.Parse(strings.TrimSpace(string(text)))
}

func readNumber(path string) (int, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

// All are the processors.
func (m *Machine) All() cpuset.CPUSet { return m.Where(func(CPU) bool { return true }) }

// Where are the processors at places that are meant.
func (m *Machine) Where(meant func(CPU) bool) cpuset.CPUSet {
	var out []int
	for id, c := range m.CPUs {
		if meant(c) {
			out = append(out, id)
		}
	}
	return cpuset.New(out...)
}

// In are the processors of the nodes.
func (m *Machine) In(nodes Mask) cpuset.CPUSet {
	return m.Where(func(c CPU) bool { return nodes.Has(c.Node) })
}

// NodeIDs are the numbers of the nodes, sorted.
func (m *Machine) NodeIDs() []int {
	var out []int
	for _, n := range m.Nodes {
		out = append(out, n.ID)
	}
	return out
}

// Mask are all nodes.
func (m *Machine) Mask() Mask { return MaskOf(m.NodeIDs()...) }

// MaskOf are the nodes of some processors.
func (m *Machine) MaskOf(cpus cpuset.CPUSet) Mask {
	var out Mask
	for _, id := range cpus.UnsortedList() {
		out |= MaskOf(m.CPUs[id].Node)
	}
	return out
}

// Count is how many different values the processors have for something.
func (m *Machine) Count(of func(CPU) int) int {
	seen := map[int]bool{}
	for _, c := range m.CPUs {
		seen[of(c)] = true
	}
	return len(seen)
}

// PerCore is how many processors a core has.
func (m *Machine) PerCore() int {
	return len(m.CPUs) / max(m.Count(func(c CPU) int { return c.Core }), 1)
}
