package numa

import (
	"errors"
	"fmt"
	"strconv"
)

// Hint is a set of nodes that a resource could be had from.
type Hint struct {
	Nodes     Mask // 0: any
	Preferred bool // no fewer nodes could ever do
}

// Hints are those of resources, by name. A resource that does not care has none; one with an empty list cannot be had.
type Hints map[string][]Hint

// What the names of policies mean: nothing is aligned; pods are taken on anyway; only where the nodes are
// preferred by all; only where it is a single one.
const (
	None       = "none"
	BestEffort = "best-effort"
	Restricted = "restricted"
	SingleNode = "single-numa-node"
)

// What is aligned: each container by itself, or a pod as a whole.
const (
	ScopeContainer = "container"
	ScopePod       = "pod"
)

// The names of options.
const (
	preferClosest = "prefer-closest-numa-nodes"
	maxNodes      = "max-allowable-numa-nodes"
)

// mostNodes is how many nodes a machine may have unless people say otherwise: sets of them are tried one after another.
const mostNodes = 8

// Policy is how the wishes of resources are merged.
type Policy struct {
	Name    string
	Machine *Machine
	closest bool // of as many nodes those that are the nearest to each other
}

// NewPolicy returns the policy of a name with options, for a machine.
func NewPolicy(name string, options map[string]string, machine *Machine) (*Policy, error) {
	p := &Policy{Name: name, Machine: machine}
	most, err := p.read(options)
	if err != nil {
		return nil, err
	}
	if n := len(machine.Nodes); n > most {
		return nil, fmt.Errorf("unsupported on machines with more than %d NUMA Nodes", most)
	}
	if p.closest {
		for _, n := range machine.Nodes {
			if n.Distances == nil && len(machine.Nodes) > 1 {
				return nil, errors.New("error getting NUMA distances: the machine does not tell them")
			}
		}
	}
	return p, nil
}

// CheckOptions reports what is wrong with options of a policy.
func CheckOptions(options map[string]string) error {
	_, err := new(Policy).read(options)
	return err
}

func (p *Policy) read(options map[string]string) (most int, err error) {
	most = mostNodes
	for name, value := range options {
		switch name {
		case preferClosest:
			if p.closest, err = strconv.ParseBool(value); err != nil {
				return 0, fmt.Errorf("bad value for option %q: %w", name, err)
			}
		case maxNodes:
			if most, err = strconv.Atoi(value); err != nil {
				return 0, fmt.Errorf("unable to convert policy option to integer %q: %w", name, err)
			}
			if most < mostNodes {
				return 0, fmt.Errorf("the minimum value of %q should not be less than %d", name, mostNodes)
			}
		default:
			return 0, fmt.Errorf("unknown Topology Manager Policy option: %q", name)
		}
	}
	return most, nil
}

// Aligns reports whether the policy promises that what it lets through is near to each other.
func (p *Policy) Aligns() bool { return p.Name == SingleNode }

// Merge chooses the nodes that suit all of the resources of several who have hints, and says whether
// the container may have them.
func (p *Policy) Merge(all []Hints) (best Hint, admit bool) {
	var lists [][]Hint
	for _, hints := range all {
		if len(hints) == 0 {
			lists = append(lists, []Hint{{Preferred: true}})
		}
		for _, list := range hints {
			switch {
			case list == nil:
				list = []Hint{{Preferred: true}}
			case len(list) == 0:
				list = []Hint{{}}
			}
			if p.Name == SingleNode {
				list = single(list)
			}
			lists = append(lists, list)
		}
	}
	m := merger{policy: p, all: p.Machine.Mask(), enough: enough(lists)}
	m.each(lists, Hint{Preferred: true}, 0)
	switch {
	case !m.found:
		m.best = Hint{Nodes: m.all}
	case p.Name == SingleNode && m.best.Nodes == m.all: // any of them
		m.best.Nodes = 0
	}
	return m.best, p.Name == BestEffort || m.best.Preferred
}

// single are the hints that name a single node, or any, and are preferred.
func single(list []Hint) []Hint {
	var out []Hint
	for _, h := range list {
		if h.Preferred && h.Nodes.Count() <= 1 {
			out = append(out, h)
		}
	}
	return out
}

// enough is how many nodes are needed by the resource that needs the most of them: where not all can have
// what they prefer, so many are the best.
func enough(lists [][]Hint) int {
	most := 0
	for _, list := range lists {
		least := -1
		for _, h := range list {
			if h.Nodes != 0 && (least < 0 || h.Nodes.Count() < least) {
				least = h.Nodes.Count()
			}
		}
		most = max(most, least)
	}
	return most
}

// merger looks for the best of all ways to take one hint of each resource.
type merger struct {
	policy *Policy
	all    Mask
	enough int
	best   Hint
	found  bool
}

// each merges what has been taken so far, of which first is the first set of nodes, with each way to go on.
func (m *merger) each(lists [][]Hint, taken Hint, first Mask) {
	if len(lists) == 0 {
		if taken.Nodes == 0 && first == 0 {
			taken.Nodes = m.all
		}
		if taken.Nodes != 0 && (!m.found || m.better(taken)) {
			m.best, m.found = taken, true
		}
		return
	}
	for _, h := range lists[0] {
		next, start := taken, first
		next.Preferred = next.Preferred && h.Preferred
		switch {
		case h.Nodes == 0:
		case start == 0:
			start, next.Nodes = h.Nodes, h.Nodes&m.all
		default:
			next.Nodes &= h.Nodes
			next.Preferred = next.Preferred && h.Nodes == start
		}
		if start != 0 && next.Nodes == 0 {
			continue // they have no node in common
		}
		m.each(lists[1:], next, start)
	}
}

// better reports whether a hint is better than the best so far.
func (m *merger) better(h Hint) bool {
	if h.Preferred != m.best.Preferred {
		return h.Preferred
	}
	ours, its := m.best.Nodes.Count(), h.Nodes.Count()
	switch {
	case h.Preferred, ours > m.enough && its > m.enough:
		return ours > its || ours == its && m.nearer(h.Nodes)
	case ours == its:
		return m.nearer(h.Nodes)
	case ours > m.enough: // the other one has not too many
		return true
	}
	return its <= m.enough && its > ours
}

// nearer reports whether the nodes, as many as the best so far, are to be taken instead.
func (m *merger) nearer(nodes Mask) bool {
	if m.policy.closest {
		its, ours := m.distance(nodes), m.distance(m.best.Nodes)
		if its != ours {
			return its < ours
		}
	}
	return nodes.compare(m.best.Nodes) < 0
}

// distance is how far the nodes are from each other on average.
func (m *merger) distance(nodes Mask) float64 {
	sum, n := 0, 0
	for _, a := range m.policy.Machine.Nodes {
		for _, b := range nodes.Nodes() {
			if nodes.Has(a.ID) {
				sum, n = sum+a.Distances[b], n+1
			}
		}
	}
	return float64(sum) / float64(max(n, 1))
}

// Generate are the hints of a resource of which some nodes have enough at present, and some could ever have.
func Generate(nodes []int, enough, ever func(Mask) bool) []Hint {
	out := []Hint{}
	least := len(nodes)
	for m := range Masks(nodes) {
		if m.Count() < least && ever(m) {
			least = m.Count()
		}
		if enough(m) {
			out = append(out, Hint{Nodes: m})
		}
	}
	for i := range out {
		out[i].Preferred = out[i].Nodes.Count() == least
	}
	return out
}
