// Package fakemachine makes machines for tests: what the kernel of one would show in /sys/devices/system, in a directory.
package fakemachine

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"k8s.io/utils/cpuset"

	"github.com/kemudi/kemudi/internal/kubelet/numa"
)

// Shape is what a machine consists of. Processors are counted as the kernel counts them mostly: first one of each core, socket by
// socket, then the second of each.
type Shape struct {
	Sockets, Nodes int   // Nodes of each socket; default 1 of both
	Cores          int   // of each node
	Threads        int   // of each core; default 1
	Caches         int   // of each node; default 1
	Memory         int64 // of each node, in MiB
	HugePages      int64 // of each node, of 2 MiB: how many
}

// New returns a machine of the shape.
func New(t testing.TB, s Shape) *numa.Machine {
	t.Helper()
	m, err := numa.Read(Tree(t, s), 0)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Tree returns the directory in which such a machine is shown.
func Tree(t testing.TB, s Shape) string {
	t.Helper()
	dir := t.TempDir()
	put := func(path, text string) {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s.Sockets, s.Nodes, s.Threads, s.Caches = max(s.Sockets, 1), max(s.Nodes, 1), max(s.Threads, 1), max(s.Caches, 1)
	nodes := s.Sockets * s.Nodes
	cores := nodes * s.Cores
	// threads are the processors of some cores, one after another.
	threads := func(from, n int) cpuset.CPUSet {
		var ids []int
		for core := from; core < from+n; core++ {
			for thread := range s.Threads {
				ids = append(ids, thread*cores+core)
			}
		}
		return cpuset.New(ids...)
	}
	put("cpu/online", threads(0, cores).String())
	put("node/online", "0-"+strconv.Itoa(nodes-1))
	for core := range cores {
		below := s.Cores / s.Caches
		cache := core / s.Cores * s.Cores
		cache += (core - cache) / below * below
		for _, id := range threads(core, 1).List() {
			at := "cpu/cpu" + strconv.Itoa(id)
			put(at+"/topology/physical_package_id", strconv.Itoa(core/(s.Cores*s.Nodes)))
			put(at+"/topology/thread_siblings_list", threads(core, 1).String())
			put(at+"/cache/index0/level", "1")
			put(at+"/cache/index0/shared_cpu_list", threads(core, 1).String())
			put(at+"/cache/index3/level", "3")
			put(at+"/cache/index3/shared_cpu_list", threads(cache, below).String())
		}
	}
	for node := range nodes {
		at := "node/node" + strconv.Itoa(node)
		put(at+"/cpulist", threads(node*s.Cores, s.Cores).String())
		put(at+"/meminfo", fmt.Sprintf("Node %d MemTotal:       %d kB\nNode %d MemFree:        1 kB", node, s.Memory<<10, node))
		put(at+"/hugepages/hugepages-2048kB/nr_hugepages", strconv.FormatInt(s.HugePages, 10))
		var far []string
		for other := range nodes {
			switch {
			case other == node:
				far = append(far, "10")
			case other/s.Nodes == node/s.Nodes:
				far = append(far, "12")
			default:
				far = append(far, "21")
			}
		}
		put(at+"/distance", strings.Join(far, " "))
	}
	return dir
}
