package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/dump"

	"github.com/kemudi/kemudi/internal/wholefile"
)

// The names of the files, in the agent's root directory.
const (
	CPUFile    = "cpu_manager_state"
	MemoryFile = "memory_manager_state"
)

// CPUManagerCheckpoint is who has which processors; sets are lists as the kernel has them.
type CPUManagerCheckpoint struct {
	PolicyName    string                       `json:"policyName"`
	DefaultCPUSet string                       `json:"defaultCpuSet"`
	Entries       map[string]map[string]string `json:"entries,omitempty"` // by UID of the pod and name of the container
	Checksum      Checksum                     `json:"checksum"`
}

// Checksum is of the text of all the rest.
type Checksum uint64

// MemoryManagerCheckpoint is who has memory of which NUMA nodes.
type MemoryManagerCheckpoint struct {
	PolicyName   string                     `json:"policyName"`
	MachineState NUMANodeMap                `json:"machineState"`
	Entries      ContainerMemoryAssignments `json:"entries,omitempty"`
	Checksum     Checksum                   `json:"checksum"`
}

// NUMANodeMap is what nodes have left, by their number.
type NUMANodeMap map[int]*NUMANodeState

// NUMANodeState is what one node has left.
type NUMANodeState struct {
	NumberOfAssignments int                              `json:"numberOfAssignments"` // one for each container and kind of memory
	MemoryMap           map[v1.ResourceName]*MemoryTable `json:"memoryMap"`
	Cells               []int                            `json:"cells"` // the nodes that containers have memory of together with this one
}

// MemoryTable is how much there is of one kind of memory, in bytes.
type MemoryTable struct {
	TotalMemSize   uint64 `json:"total"`
	SystemReserved uint64 `json:"systemReserved"`
	Allocatable    uint64 `json:"allocatable"`
	Reserved       uint64 `json:"reserved"`
	Free           uint64 `json:"free"`
}

// Block is what a container has of one kind of memory.
type Block struct {
	NUMAAffinity []int           `json:"numaAffinity"`
	Type         v1.ResourceName `json:"type"`
	Size         uint64          `json:"size"`
}

// ContainerMemoryAssignments is what containers have, by UID of the pod and name of the container.
type ContainerMemoryAssignments map[string]map[string][]Block

// errCorrupt says that a file is not what somebody has written.
var errCorrupt = errors.New("checkpoint is corrupted")

// ReadCPUs reads who has which processors. Nil: there is no such file. One of another policy is refused, as containers that
// run have what that one has given them.
func ReadCPUs(path, policy string) (*CPUManagerCheckpoint, error) {
	c := &CPUManagerCheckpoint{Entries: map[string]map[string]string{}}
	there, err := read(path, c)
	if err == nil && there {
		err = fit(c, &c.Checksum, c.PolicyName, policy)
	}
	if err != nil {
		return nil, fmt.Errorf("could not restore state from checkpoint: %w, please drain this node and delete the CPU manager checkpoint file %q before restarting Kubelet", err, path)
	}
	if !there {
		return nil, nil
	}
	return c, nil
}

// ReadMemory reads who has which memory, as [ReadCPUs] does of processors.
func ReadMemory(path, policy string) (*MemoryManagerCheckpoint, error) {
	c := &MemoryManagerCheckpoint{Entries: ContainerMemoryAssignments{}, MachineState: NUMANodeMap{}}
	there, err := read(path, c)
	if err == nil && there {
		err = fit(c, &c.Checksum, c.PolicyName, policy)
	}
	if err != nil {
		return nil, fmt.Errorf("could not restore state from checkpoint: %w, please drain this node and delete the memory manager checkpoint file %q before restarting Kubelet", err, path)
	}
	if !there {
		return nil, nil
	}
	return c, nil
}

func read(path string, into any) (there bool, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return false, fmt.Errorf("%w: %w", errCorrupt, err)
	}
	return true, nil
}

// fit reports what is wrong with a file that has been read: its checksum, or its policy. One without a checksum is believed.
func fit(record any, sum *Checksum, policy, want string) error {
	had := *sum
	if *sum = 0; had != 0 && had != sumOf(record) {
		return errCorrupt
	}
	if *sum = had; policy != want {
		return fmt.Errorf("configured policy %q differs from state checkpoint policy %q", want, policy)
	}
	return nil
}

// sumOf is the checksum of a record whose own is 0.
func sumOf(record any) Checksum {
	h := fnv.New32a()
	// Upstream's type is one of another package.
	fmt.Fprint(h, strings.ReplaceAll(dump.ForHash(record), "(state.Checksum)", "(checksum.Checksum)")) // never fails
	return Checksum(h.Sum32())
}

// Write puts the record into a file, as a whole or not at all.
func (c *CPUManagerCheckpoint) Write(path string) error {
	c.Checksum = 0
	c.Checksum = sumOf(c)
	return write(path, c)
}

// Write puts the record into a file, as a whole or not at all.
func (c *MemoryManagerCheckpoint) Write(path string) error {
	c.Checksum = 0
	c.Checksum = sumOf(c)
	return write(path, c)
}

func write(path string, record any) error {
	text, err := json.Marshal(record)
	if err != nil {
		return fmt.Errorf("encode checkpoint: %w", err)
	}
	if err := wholefile.Private(path, text); err != nil {
		return fmt.Errorf("write checkpoint: %w", err)
	}
	return nil
}
