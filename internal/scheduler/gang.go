package scheduler

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/scheduler/plugins"
	"github.com/kemudi/kemudi/internal/scheduler/snapshot"
)

// gang is pods that are to be placed together, as the decision about them sees them.
type gang struct {
	pods   []*snapshot.Pod // in the order in which they are placed
	least  int             // pods that must have a place in the end
	placed int             // pods that have one already
	key    string          // label of which the nodes of all must have one value; empty: none
	value  *string         // the one that those have which are placed; nil: none has any

	heard    map[types.UID]hearing // what extenders say, of pods that they have a say in
	guessing bool                  // they are not asked: what they have not refused will do
	ask      *question             // what they are to be asked, after errAsks
}

// trial puts pods of a gang on nodes, and takes them off. A reason says that it cannot.
type trial interface {
	take(i int, n *snapshot.Node) *plugins.Reason
	back(i int)
}

// gangDecision is where the pods of a gang go, or why they do not.
type gangDecision struct {
	nodes   []*snapshot.Node // by pod; nil: none
	why     []setback        // by pod; of those that have no node, as far as they were looked at
	message string           // why the gang as a whole is not placed; empty: it is
	err     error            // the attempt itself failed
	domain  *domain
}

// count is how many pods have a node.
func (d *gangDecision) count() (n int) {
	for _, node := range d.nodes {
		if node != nil {
			n++
		}
	}
	return n
}

// domain is the nodes that have one value of a label.
type domain struct {
	key, value string
	nodes      []*snapshot.Node
}

// has reports whether a node is in the domain; every node is in none.
func (d *domain) has(n *snapshot.Node) bool {
	return d == nil || n.Obj != nil && n.Obj.Labels[d.key] == d.value
}

// outside is the reason of nodes that are not in the domain that is looked at.
var outside = &plugins.Reason{Texts: []string{"node(s) were outside the topology domain of the pod group"}, Final: true, Plugin: plugins.NoPlugin}

// narrow leaves of the nodes to look at those in the domain.
func (d *domain) narrow(nodes []*snapshot.Node, no *unfit, all int) ([]*snapshot.Node, *unfit) {
	switch {
	case no == nil:
		return d.nodes, &unfit{nodes: all, elsewhere: outside}
	case no.rejected != nil:
		return nodes, no
	}
	return slices.DeleteFunc(slices.Clone(nodes), func(n *snapshot.Node) bool { return !d.has(n) }), no
}

// domains are where a gang may go: the nodes of each value of its label, or everywhere
// (nil).
func (c *cycle) domains(g *gang) []*domain {
	if g.key == "" {
		return []*domain{nil}
	}
	var list []*domain
	by := map[string]*domain{}
	for _, n := range c.snapshot.Nodes() {
		value, ok := n.Obj.Labels[g.key]
		if !ok || g.value != nil && *g.value != value {
			continue
		}
		if by[value] == nil {
			by[value] = &domain{key: g.key, value: value}
			list = append(list, by[value])
		}
		by[value].nodes = append(by[value].nodes, n)
	}
	return list
}

// gang decides where the pods of a gang go: in the domain that takes most of them, and of
// those in the smallest. The snapshot is as before when it returns (S1).
func (c *cycle) gang(g *gang, t trial) gangDecision {
	domains := c.domains(g)
	if len(domains) == 0 {
		return gangDecision{message: fmt.Sprintf("0/0 placements are available: no node has the label %q", g.key), nodes: make([]*snapshot.Node, len(g.pods)), why: make([]setback, len(g.pods))}
	}
	var best, first *gangDecision
	for _, in := range domains {
		d := c.gangIn(g, t, in)
		if d.err != nil {
			return d
		}
		if first == nil {
			first = &d
		}
		if d.message == "" && (best == nil || d.better(best)) {
			best = &d
		}
	}
	if best != nil {
		return *best
	}
	if g.key != "" {
		first.message = fmt.Sprintf("0/%d placements are available, first placement status: %s", len(domains), first.message)
	}
	return *first
}

func (d *gangDecision) better(than *gangDecision) bool {
	if a, b := d.count(), than.count(); a != b {
		return a > b
	}
	return len(d.domain.nodes) < len(than.domain.nodes)
}

// gangIn decides about a gang in one domain: pod by pod, each seeing those before it in
// their places.
func (c *cycle) gangIn(g *gang, t trial, in *domain) gangDecision {
	d := gangDecision{nodes: make([]*snapshot.Node, len(g.pods)), why: make([]setback, len(g.pods)), domain: in}
	c.domain = in
	defer func() {
		c.domain = nil
		for i, n := range slices.Backward(d.nodes) {
			if n != nil {
				t.back(i)
			}
		}
	}()
	placed, failed := g.placed, -1
	for i, p := range g.pods {
		if failed >= 0 && g.heard[p.Obj.UID] == nil && alike(p, g.pods[failed]) {
			d.why[i] = d.why[failed]
		} else if d.why[i], d.err = c.member(g, t, &d, i); d.err != nil {
			return d
		}
		if d.nodes[i] != nil {
			placed, failed = placed+1, -1 // it may be what the others are drawn to
		} else {
			failed = i
		}
		if left := len(g.pods) - i - 1; placed+left < g.least {
			d.message = fmt.Sprintf("minCount (%d) cannot be satisfied: %d scheduled, %d remaining", g.least, placed, left)
			return d
		}
	}
	if placed == g.placed {
		d.message = "pod group is unschedulable"
	}
	return d
}

// member finds a node for one pod of a gang, and takes it.
func (c *cycle) member(g *gang, t trial, d *gangDecision, i int) (setback, error) {
	p := g.pods[i]
	var found decision
	if said := g.heard[p.Obj.UID]; said != nil {
		found = c.heed(g, said, p)
	} else {
		found = c.decideAnew(p)
	}
	switch {
	case errors.Is(found.err, errNoNodes):
		return setback{message: found.err.Error(), plugins: anyEvent}, nil
	case found.err != nil:
		return setback{}, found.err
	case found.unfit != nil:
		return setback{message: found.unfit.message(), plugins: found.unfit.plugins}, nil
	}
	if why := t.take(i, found.node); why != nil {
		u := &unfit{nodes: 1, refusals: []refusal{{found.node, why}}, plugins: 1 << why.Plugin}
		return setback{message: u.message(), plugins: u.plugins}, nil
	}
	d.nodes[i] = found.node
	return setback{}, nil
}

// alike says that what keeps the one pod from every node keeps the other from it as well.
func alike(a, b *snapshot.Pod) bool {
	return a.Constraints == b.Constraints && a.Priority == b.Priority && slices.Equal(a.Requests, b.Requests) &&
		len(a.HostPorts)+len(b.HostPorts)+len(a.Claims)+len(b.Claims) == 0 && len(a.Obj.Spec.ResourceClaims)+len(b.Obj.Spec.ResourceClaims) == 0 &&
		a.Nominated() == nil && b.Nominated() == nil && a.Obj.Namespace == b.Obj.Namespace && labels.Equals(a.Obj.Labels, b.Obj.Labels)
}
