package memory

import (
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/kubelet/numa"
	"github.com/kemudi/kemudi/internal/kubelet/sequence"
)

// amounts are bytes by kind of memory: memory itself, and huge pages of each size.
type amounts map[v1.ResourceName]int64

// block is how much of one kind of memory a container has of some nodes together.
type block struct {
	kind  v1.ResourceName
	nodes numa.Mask
	size  int64
}

// assignments are what containers have, by pod and name.
type assignments map[types.UID]map[string][]block

// isMemory reports whether a resource is a kind of memory.
func isMemory(name v1.ResourceName) bool {
	return name == v1.ResourceMemory || strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
}

// asked is what a container is to have set aside: what it asks for, if its pod is guaranteed that.
func asked(pod *v1.Pod, c *v1.Container) amounts {
	if pod.Spec.Resources != nil || core.QOSClass(pod) != v1.PodQOSGuaranteed {
		return nil
	}
	out := amounts{}
	for name, q := range c.Resources.Requests {
		if isMemory(name) && q.Value() > 0 {
			out[name] = q.Value()
		}
	}
	return out
}

// askedByPod is what the containers of a pod need at a time.
func askedByPod(pod *v1.Pod) amounts {
	out := amounts{}
	for _, c := range sequence.Of(pod) {
		for kind := range asked(pod, c.Container) {
			out[kind] = sequence.Peak(pod, func(c *v1.Container) int64 { return asked(pod, c)[kind] })
		}
	}
	return out
}

// sorted are the kinds in order.
func (a amounts) sorted() []v1.ResourceName { return slices.Sorted(maps.Keys(a)) }

// bank is what the nodes of the machine have for containers.
type bank map[int]amounts // by node

// of is what some nodes have of a kind together.
func (b bank) of(nodes numa.Mask, kind v1.ResourceName) (n int64) {
	for _, node := range nodes.Nodes() {
		n += b[node][kind]
	}
	return n
}

// have reports whether some nodes have all of it, less what is taken of them.
func (b bank) have(nodes numa.Mask, want amounts, taken assignments) bool {
	for kind, n := range want {
		if b.of(nodes, kind)-taken.of(nodes, kind) < n {
			return false
		}
	}
	return true
}

// of is how much of a kind containers have of exactly these nodes.
func (as assignments) of(nodes numa.Mask, kind v1.ResourceName) (n int64) {
	for b := range as.blocks {
		if b.nodes == nodes && b.kind == kind {
			n += b.size
		}
	}
	return n
}

func (as assignments) blocks(yield func(block) bool) {
	for _, of := range as {
		for _, list := range of {
			for _, b := range list {
				if !yield(b) {
					return
				}
			}
		}
	}
}

// open reports whether containers may have memory of these nodes together, beside those that have some of them already (N1).
func (as assignments) open(nodes numa.Mask) bool {
	for b := range as.blocks {
		if b.nodes&nodes != 0 && b.nodes != nodes {
			return false
		}
	}
	return true
}

// without are the assignments of others.
func (as assignments) without(uid types.UID) assignments {
	out := maps.Clone(as)
	delete(out, uid)
	return out
}

// handed is what a container of a pod could take over from init containers before it that have ended (N2).
func (as assignments) handed(pod *v1.Pod, name string) []block {
	var out []block
	for _, c := range sequence.Of(pod) {
		if c.Name == name {
			break
		}
		if c.Ends {
			out = append(out, as[pod.UID][c.Name]...)
		}
	}
	return out
}

// takeOver takes so much of a kind on the nodes from init containers of the pod before a container, and returns how much it has
// taken.
func (as assignments) takeOver(pod *v1.Pod, name string, b block) (taken int64) {
	for _, c := range sequence.Of(pod) {
		if c.Name == name {
			break
		}
		if !c.Ends {
			continue
		}
		list := slices.Clone(as[pod.UID][c.Name])
		for i := range list {
			if list[i].kind == b.kind && list[i].nodes == b.nodes {
				n := min(list[i].size, b.size-taken)
				list[i].size -= n
				taken += n
			}
		}
		if list != nil {
			as[pod.UID][c.Name] = list
		}
	}
	return taken
}
