package cpus

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"k8s.io/utils/cpuset"

	"github.com/kemudi/kemudi/internal/kubelet/numa"
)

// What processors have in common with others.
func coreOf(c numa.CPU) int   { return c.Core }
func cacheOf(c numa.CPU) int  { return c.Cache }
func socketOf(c numa.CPU) int { return c.Socket }
func nodeOf(c numa.CPU) int   { return c.Node }

// take chooses so many of the free processors.
func (r Rules) take(m *numa.Machine, free cpuset.CPUSet, want int) (cpuset.CPUSet, error) {
	if n := free.Size(); n < want {
		return cpuset.New(), fmt.Errorf("not enough cpus available to satisfy request: requested=%d, available=%d", want, n)
	}
	if r.SpreadNodes {
		if got, ok := r.spread(m, free, want); ok {
			return got, nil
		}
	}
	return r.pack(m, free, want), nil
}

// pack takes whole NUMA nodes and sockets as long as that many are wanted, then whole cores, then what is left of them: always
// where the least is free, so that whole ones remain for others. There must be enough.
func (r Rules) pack(m *numa.Machine, free cpuset.CPUSet, want int) cpuset.CPUSet {
	t := &taking{m: m, rules: r, free: free, want: want, got: cpuset.New()}
	outer, inner := t.levels()
	t.whole(outer)
	t.whole(inner)
	if r.ByCache {
		t.whole(cacheOf)
		t.oneCache()
	}
	if !r.SpreadCores {
		t.whole(coreOf)
	}
	for _, id := range t.ordered() {
		if t.want > 0 {
			t.take(cpuset.New(id))
		}
	}
	return t.got
}

// taking is one choice under way.
type taking struct {
	m     *numa.Machine
	rules Rules
	free  cpuset.CPUSet
	want  int // still
	got   cpuset.CPUSet
}

func (t *taking) take(set cpuset.CPUSet) {
	t.got, t.free, t.want = t.got.Union(set), t.free.Difference(set), t.want-set.Size()
}

// levels are what holds the most processors, and what is in it: some sockets have several nodes, some nodes several sockets.
func (t *taking) levels() (outer, inner func(numa.CPU) int) {
	if t.m.Count(socketOf) >= t.m.Count(nodeOf) {
		return nodeOf, socketOf
	}
	return socketOf, nodeOf
}

// whole takes those groups of which nothing is taken yet and all is wanted.
func (t *taking) whole(of func(numa.CPU) int) {
	seen := map[int]bool{}
	for _, id := range t.ordered() {
		at := of(t.m.CPUs[id])
		if seen[at] {
			continue
		}
		seen[at] = true
		group := t.m.Where(func(c numa.CPU) bool { return of(c) == at })
		if group.Size() <= t.want && group.IsSubsetOf(t.free) {
			t.take(group)
		}
	}
}

// oneCache leaves only what is free below the fullest cache that has enough for the rest, if there is one.
func (t *taking) oneCache() {
	below := map[int]cpuset.CPUSet{}
	for _, id := range t.free.UnsortedList() {
		at := t.m.CPUs[id].Cache
		below[at] = below[at].Union(cpuset.New(id))
	}
	best, found := 0, false
	for at, set := range below {
		if n := set.Size(); n >= t.want && (!found || n < below[best].Size() || n == below[best].Size() && at < best) {
			best, found = at, true
		}
	}
	if found && t.want > 0 {
		t.free = below[best]
	}
}

// ordered are the free processors in the order in which they are taken.
func (t *taking) ordered() []int {
	outer, inner := t.levels()
	groups := []func(numa.CPU) int{outer, inner}
	if t.rules.ByCache {
		groups = append(groups, cacheOf)
	}
	groups = append(groups, coreOf)
	left := make([]map[int]int, len(groups)) // how many are free in each group
	rank := map[int]int{}                    // the how manieth of its core a processor is
	for i, of := range groups {
		left[i] = map[int]int{}
		for _, id := range t.free.List() {
			at := of(t.m.CPUs[id])
			if i == len(groups)-1 {
				rank[id] = left[i][at]
			}
			left[i][at]++
		}
	}
	out := t.free.UnsortedList()
	slices.SortFunc(out, func(a, b int) int {
		x, y := t.m.CPUs[a], t.m.CPUs[b]
		for i, of := range groups {
			if i == len(groups)-1 && t.rules.SpreadCores && rank[a] != rank[b] {
				return cmp.Compare(rank[a], rank[b])
			}
			if c := cmp.Or(cmp.Compare(left[i][of(x)], left[i][of(y)]), cmp.Compare(of(x), of(y))); c != 0 {
				return c
			}
		}
		return cmp.Compare(a, b)
	})
	return out
}

// spread takes as many of each of as few NUMA nodes as can be, those by which what is left free differs the least; false: there
// is no even way.
func (r Rules) spread(m *numa.Machine, free cpuset.CPUSet, want int) (cpuset.CPUSet, bool) {
	unit := 1
	if r.FullCores {
		unit = max(m.PerCore(), 1)
	}
	if want%unit != 0 {
		return cpuset.New(), false
	}
	nodes := m.NodeIDs()
	for size := 1; size <= len(nodes); size++ {
		best, least := map[int]int(nil), math.Inf(1)
		for mask := range numa.Masks(nodes) {
			if mask.Count() != size {
				continue
			}
			shares, uneven := share(m, free, division{mask, want, unit})
			if shares != nil && uneven < least {
				best, least = shares, uneven
			}
		}
		if best == nil {
			continue
		}
		got := cpuset.New()
		for node, n := range best {
			got = got.Union(r.pack(m, free.Intersection(m.In(numa.MaskOf(node))), n))
		}
		return got, true
	}
	return cpuset.New(), false
}

// division is how many processors some nodes are to give together, in units.
type division struct {
	nodes      numa.Mask
	want, unit int
}

// share says how many each of the nodes gives, and how uneven what is left on all nodes is then. Nil: they have not enough.
func share(m *numa.Machine, free cpuset.CPUSet, d division) (shares map[int]int, uneven float64) {
	left := map[int]int{}
	for _, id := range m.NodeIDs() {
		left[id] = 0
	}
	for _, id := range free.UnsortedList() {
		left[m.CPUs[id].Node]++
	}
	nodes := d.nodes.Nodes()
	each := d.want / len(nodes) / d.unit * d.unit
	shares = map[int]int{}
	for _, n := range nodes {
		shares[n] = each
		if left[n] -= each; left[n] < 0 {
			return nil, 0
		}
	}
	for rest := d.want - each*len(nodes); rest > 0; rest -= d.unit {
		most := slices.MaxFunc(nodes, func(a, b int) int {
			return cmp.Or(cmp.Compare(shares[b], shares[a]), cmp.Compare(left[a], left[b]), cmp.Compare(b, a))
		})
		shares[most] += d.unit
		if left[most] -= d.unit; left[most] < 0 {
			return nil, 0
		}
	}
	mean := float64(free.Size()-d.want) / float64(len(left))
	for _, n := range left {
		uneven += (float64(n) - mean) * (float64(n) - mean)
	}
	return shares, uneven
}
