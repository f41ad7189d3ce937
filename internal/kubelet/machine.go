package kubelet

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kemudi/kemudi/internal/kubelet/cgroup"
	"github.com/kemudi/kemudi/internal/kubelet/cri"
	"github.com/kemudi/kemudi/internal/kubelet/evict"
)

// machineInfo is what identifies the machine.
type machineInfo struct {
	machineID, systemUUID, bootID, kernel, osImage string
}

// findFacts looks at the machine, unless the node is simulated.
func (a *Agent) findFacts() error {
	f := &a.facts
	f.capacity = v1.ResourceList{}
	if !a.o.Simulated {
		if err := readCapacity(f.capacity, a.o.RootDir); err != nil {
			return err
		}
		f.machine = readMachine()
	}
	f.capacity[v1.ResourcePods] = *resource.NewQuantity(int64(a.o.Settings.MaxPods), resource.DecimalSI)
	for name, q := range a.o.Capacity {
		f.capacity[name] = q.DeepCopy()
	}
	memory := f.capacity[v1.ResourceMemory]
	f.node = cri.Node{
		Name: a.o.NodeName, Allocatable: a.allocatable(), MemoryCapacity: memory.Value(),
		ClusterDNS: a.o.ClusterDNS, ClusterDomain: a.o.ClusterDomain, PodLogsDir: a.o.PodLogsDir,
		SeccompDir: filepath.Join(a.o.RootDir, "seccomp"), SandboxSeccomp: a.o.SandboxSeccomp,
	}
	for name := range f.capacity {
		if size, ok := strings.CutPrefix(string(name), v1.ResourceHugePagesPrefix); ok {
			f.node.HugePageSizes = append(f.node.HugePageSizes, size)
		}
	}
	if !a.o.Simulated {
		f.node.CgroupParent = a.o.CgroupParent
		cgroups := cgroup.Open(cgroup.Top)
		f.node.CgroupV2 = cgroups.V2()
		f.node.LimitSwap = cgroups.HasSwap(a.o.CgroupParent)
	}
	return nil
}

// allocatable is what is left of the capacity for pods: neither what is reserved
// for others nor what must be left free.
func (a *Agent) allocatable() v1.ResourceList {
	out := a.facts.capacity.DeepCopy()
	take := func(name v1.ResourceName, reserved resource.Quantity) {
		if q, ok := out[name]; ok {
			q.Sub(reserved)
			if q.Sign() < 0 {
				q = resource.Quantity{Format: q.Format}
			}
			out[name] = q
		}
	}
	for name, reserved := range a.o.Reserved {
		take(name, reserved)
	}
	if a.o.Simulated {
		return out
	}
	for name, s := range map[v1.ResourceName]evict.Signal{v1.ResourceMemory: evict.MemoryAvailable, v1.ResourceEphemeralStorage: evict.NodeFSAvailable} {
		q := a.facts.capacity[name]
		take(name, *resource.NewQuantity(evict.Held(a.o.Settings.Eviction, s, q.Value()), resource.BinarySI))
	}
	return out
}

// nodeFacts is what pods are translated with; the host's own DNS and hosts file
// may change and are read anew.
func (a *Agent) nodeFacts() cri.Node {
	n := a.facts.node
	n.IPs = a.nodeIPs()
	if a.o.Simulated {
		return n
	}
	n.HostDNS = cri.HostResolv(a.o.ResolvConf, os.ReadFile)
	if data, err := os.ReadFile("/etc/hosts"); err == nil {
		n.HostHosts = string(data)
	}
	return n
}

func readCapacity(out v1.ResourceList, rootDir string) error {
	out[v1.ResourceCPU] = *resource.NewQuantity(int64(runtime.NumCPU()), resource.DecimalSI)
	memory, err := totalMemory()
	if err != nil {
		return err
	}
	out[v1.ResourceMemory] = *resource.NewQuantity(memory, resource.BinarySI)
	if err := os.MkdirAll(rootDir, 0o750); err != nil {
		return fmt.Errorf("make root directory: %w", err)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(rootDir, &fs); err != nil {
		return fmt.Errorf("size of the file system of %s: %w", rootDir, err)
	}
	out[v1.ResourceEphemeralStorage] = *resource.NewQuantity(int64(fs.Blocks)*fs.Bsize, resource.BinarySI)
	for size, n := range hugePages() {
		out[v1.ResourceName(v1.ResourceHugePagesPrefix+size)] = *resource.NewQuantity(n, resource.BinarySI)
	}
	return nil
}

// totalMemory is MemTotal, or the limit that this machine's own container has.
func totalMemory() (int64, error) {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0, fmt.Errorf("read memory size: %w", err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) >= 2 && words[0] == "MemTotal:" {
			kb, err := strconv.ParseInt(words[1], 10, 64)
			if err != nil {
				return 0, fmt.Errorf("read memory size: %w", err)
			}
			return kb << 10, nil
		}
	}
	return 0, fmt.Errorf("read memory size: no MemTotal in /proc/meminfo")
}

// hugePages are the bytes set aside for huge pages, by size ("2Mi").
func hugePages() map[string]int64 {
	out := map[string]int64{}
	dirs, err := filepath.Glob("/sys/kernel/mm/hugepages/hugepages-*kB")
	if err != nil {
		return out
	}
	for _, dir := range dirs {
		kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimPrefix(filepath.Base(dir), "hugepages-"), "kB"), 10, 64)
		if err != nil {
			continue
		}
		n, err := strconv.ParseInt(readLine(filepath.Join(dir, "nr_hugepages")), 10, 64)
		if err != nil {
			continue
		}
		out[resource.NewQuantity(kb<<10, resource.BinarySI).String()] = n * kb << 10
	}
	return out
}

func readMachine() machineInfo {
	m := machineInfo{
		machineID:  readLine("/etc/machine-id"),
		systemUUID: readLine("/sys/class/dmi/id/product_uuid"),
		bootID:     readLine("/proc/sys/kernel/random/boot_id"),
		osImage:    "Linux",
	}
	if m.systemUUID == "" {
		m.systemUUID = m.machineID
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.kernel = unix.ByteSliceToString(u.Release[:])
	}
	if data, err := os.ReadFile("/etc/os-release"); err == nil {
		for line := range strings.Lines(string(data)) {
			if name, ok := strings.CutPrefix(strings.TrimSpace(line), "PRETTY_NAME="); ok {
				m.osImage = strings.Trim(name, `"`)
			}
		}
	}
	return m
}

func readLine(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}
