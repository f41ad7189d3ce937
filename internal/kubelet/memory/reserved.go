package memory

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kemudi/kemudi/internal/kubelet/numa"
)

// Limits are amounts of kinds of memory.
type Limits v1.ResourceList

func (l Limits) of(kind v1.ResourceName) int64 {
	q := l[kind]
	return q.Value()
}

// Reserved is what of the memory of NUMA nodes is not for containers. It is the value of a flag, which may be given several times:
// 0:memory=1Gi,hugepages-2Mi=64Mi.
type Reserved map[int]Limits

// Type is for the flag's help.
func (r *Reserved) Type() string { return "node:kind=quantity,..." }

// String is the list as the flag takes it.
func (r *Reserved) String() string {
	var nodes []string
	for _, node := range slices.Sorted(maps.Keys(*r)) {
		var parts []string
		for _, kind := range slices.Sorted(maps.Keys((*r)[node])) {
			q := (*r)[node][kind]
			parts = append(parts, string(kind)+"="+q.String())
		}
		nodes = append(nodes, strconv.Itoa(node)+":"+strings.Join(parts, ","))
	}
	return strings.Join(nodes, ",")
}

// Set adds what is reserved of one node, or of several one after another.
func (r *Reserved) Set(s string) error {
	if *r == nil {
		*r = Reserved{}
	}
	node := -1
	for part := range strings.FieldsFuncSeq(s, func(c rune) bool { return c == ',' || c == ';' }) {
		part = strings.TrimSpace(part)
		if id, rest, ok := strings.Cut(part, ":"); ok {
			n, err := strconv.Atoi(strings.TrimSpace(id))
			if err != nil || n < 0 {
				return fmt.Errorf("the reserved memory has incorrect format, expected numaNode:type=quantity[,type=quantity...], got %s", part)
			}
			node, part = n, rest
		}
		name, value, ok := strings.Cut(part, "=")
		if !ok || node < 0 {
			return fmt.Errorf("the reserved memory has incorrect format, expected numaNode:type=quantity[,type=quantity...], got %s", part)
		}
		q, err := resource.ParseQuantity(value)
		if err != nil {
			return fmt.Errorf("quantity of %s of NUMA node %d: %w", name, node, err)
		}
		if err := r.add(node, v1.ResourceName(name), q); err != nil {
			return err
		}
	}
	return nil
}

func (r *Reserved) add(node int, kind v1.ResourceName, q resource.Quantity) error {
	switch _, twice := (*r)[node][kind]; {
	case !isMemory(kind):
		return fmt.Errorf("the limit type %q for NUMA node %d is not supported, only [memory hugepages-<HugePageSize>] is accepted", kind, node)
	case q.Sign() <= 0:
		return fmt.Errorf("reserved memory may not be zero for NUMA node %d and resource %q", node, kind)
	case twice:
		return fmt.Errorf("the reserved memory has a duplicate value for NUMA node %d and resource %q", node, kind)
	}
	if (*r)[node] == nil {
		(*r)[node] = Limits{}
	}
	(*r)[node][kind] = q
	return nil
}

// fit reports what speaks against it on a machine where so much is kept from pods.
func (r Reserved) fit(m *numa.Machine, kept v1.ResourceList) error {
	sums := v1.ResourceList{}
	for _, node := range slices.Sorted(maps.Keys(r)) {
		if !slices.Contains(m.NodeIDs(), node) {
			return fmt.Errorf("the reserved memory configuration references a NUMA node %d that does not exist on this machine", node)
		}
		for kind, q := range r[node] {
			sum := sums[kind]
			sum.Add(q)
			sums[kind] = sum
		}
	}
	kinds := maps.Clone(sums)
	for kind := range kept {
		if isMemory(kind) {
			kinds[kind] = kept[kind]
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		sum, all := sums[kind], kept[kind]
		if sum.Cmp(all) != 0 {
			return fmt.Errorf("the total amount %q of type %q is not equal to the value %q determined by Node Allocatable feature", sum.String(), kind, all.String())
		}
	}
	return nil
}
