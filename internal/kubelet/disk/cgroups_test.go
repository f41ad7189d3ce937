package disk

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kemudi/kemudi/internal/kubelet/admit"
	"github.com/kemudi/kemudi/internal/kubelet/cgroup"
	"github.com/kemudi/kemudi/internal/kubelet/cri"
)

// TestAgentWithOtherSettingsEndsWhatWasReserved starts one that reserves no memory for classes on a machine whose cgroups are as one that
// does has left them.
func TestAgentWithOtherSettingsEndsWhatWasReserved(t *testing.T) {
	tree := cgroup.Open(cgroup.Top)
	if os.Getuid() != 0 {
		t.Skip("cgroups are made by root alone")
	}
	parent := "/k-disk-test-" + filepath.Base(t.TempDir())
	t.Cleanup(func() {
		if err := tree.Remove(parent); err != nil {
			t.Error(err)
		}
	})
	node := &cri.Node{
		CgroupParent: parent, CgroupV2: tree.V2(), Allocatable: v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")},
		Memory: cri.MemoryQoS{Tiered: true, Reserved: 100},
	}
	files := map[string]string{"burstable/memory.max": "max", "besteffort/memory.max": "max", "burstable/memory.low": "0", "memory.low": "0", "memory.min": "0"}
	dir := filepath.Join(cgroup.Top, parent, "kubepods")
	if !tree.V2() {
		files = map[string]string{"burstable/memory.limit_in_bytes": "9223372036854771712", "besteffort/memory.limit_in_bytes": "9223372036854771712"}
		dir = filepath.Join(cgroup.Top, "memory", parent, "kubepods")
	}
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(text))
	}
	d := &Disk{o: Options{Node: node}, cgroups: tree}
	if err := d.freeClasses(); err != nil {
		t.Errorf("where nothing is there yet: got %v", err)
	}
	if err := d.WeighClasses(admit.Asked{CPU: 100, Memory: 64 << 20, Guaranteed: 32 << 20}); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		memory cri.MemoryQoS
		free   bool
	}{{node.Memory, false}, {cri.MemoryQoS{}, true}} {
		node.Memory = step.memory
		if err := d.freeClasses(); err != nil {
			t.Fatal(err)
		}
		for name, none := range files {
			if got := read(name); (got == none) != step.free {
				t.Errorf("with %+v: %s is %s", step.memory, name, got)
			}
		}
	}
}
