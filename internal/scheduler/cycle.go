package scheduler

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/kemudi/kemudi/internal/scheduler/plugins"
	"github.com/kemudi/kemudi/internal/scheduler/snapshot"
)

// Bounds of how many nodes are scored, as upstream has them: a search ends
// when it has found this many that will do.
const (
	alwaysAllBelow   = 100 // nodes: all are looked at
	lowestPercentage = 5
)

// errNoNodes is the reason when there is nothing to choose from.
var errNoNodes = errors.New("no nodes available to schedule pods")

// cycle decides where pods go. It is a function of its snapshot and of chance:
// it does no I/O, and what time it takes it measures, but does not decide by. What it changes in the snapshot to try
// something, it puts back.
type cycle struct {
	snapshot   *snapshot.Snapshot
	plugins    *plugins.Set
	percentage int // of nodes to score; 0: by the size of the cluster
	rand       *rand.Rand

	budgets *budgets // that preemption heeds

	start  int // where in the order of nodes the next search begins
	memos  memos
	domain *domain // no other nodes are looked at; nil: all are
	groups *groups // by which pods are as important as their group; nil: there are none
	watch  *stopwatch

	// Scratch, reused from pod to pod.
	pod      plugins.Cycle
	err      error  // the attempt has failed
	memo     *memo  // of pods of its shape; nil: none
	alike    bool   // pods of its shape fit where it does
	idle     uint32 // plugins that have nothing to do with the pod once it has a node, by index
	filters  []plugins.Filterer
	took     part
	local    int // of filters, those that look at nothing but the node
	fresh    []*snapshot.Node
	feasible []*snapshot.Node
	refusals []refusal
	total    []int64 // scores of feasible
	rated    []int64 // of fresh
	preempts
	scores []int64 // of one plugin
}

// part says which plugins take part in the attempt at hand, by index.
type part struct {
	looking   uint32 // have looked at the pod
	filtering uint32 // filter its nodes
}

// preempts is scratch of preemption.
type preempts struct {
	potential  []*snapshot.Node
	candidates []*candidate
}

// refusal is a node that a pod cannot go to.
type refusal struct {
	node   *snapshot.Node
	reason *plugins.Reason
}

// decision is what a cycle found: a node, or why there is none.
type decision struct {
	node      *snapshot.Node
	evaluated int // nodes that were filtered
	feasible  int
	unfit     *unfit   // no node will do
	setback   *setback // no node will do, as for the last pod of the shape
	err       error    // the attempt itself failed
}

// unfit says why a pod fits nowhere.
type unfit struct {
	nodes    int // in the cluster
	refusals []refusal
	// rejected, if not nil, is why no node was looked at.
	rejected *plugins.Reason
	// elsewhere is why nodes without a refusal were not looked at; nil if all were.
	elsewhere *plugins.Reason
	plugins   uint32 // those that refused, by index
}

// decide chooses a node for a pod.
func (c *cycle) decide(p *snapshot.Pod) decision {
	if err := c.hopeless(p); err != nil {
		return decision{err: err}
	}
	nodes, no := c.begin(p)
	if s := c.standing(); s != nil {
		return decision{setback: s}
	}
	return c.choice(nodes, no)
}

// decideAnew is decide for a pod that is placed with others: the setback of a pod that
// goes alone, which looked for victims, is not its own.
func (c *cycle) decideAnew(p *snapshot.Pod) decision {
	if err := c.hopeless(p); err != nil {
		return decision{err: err}
	}
	return c.choice(c.begin(p))
}

// hopeless is why no decision can be made.
func (c *cycle) hopeless(p *snapshot.Pod) error {
	if p.Constraints.Err != nil {
		return p.Constraints.Err
	}
	if c.snapshot.Len() == 0 {
		return errNoNodes
	}
	return nil
}

// choice chooses a node for the pod at hand.
func (c *cycle) choice(nodes []*snapshot.Node, no *unfit) decision {
	d := decision{unfit: c.find(nodes, no)}
	if no == nil || no.rejected == nil {
		c.watch.passed(atFilter, statusOf(c.err))
		c.watch.had(atFilter, c.took.filtering)
	}
	if c.err != nil {
		return decision{err: c.err}
	}
	d.evaluated, d.feasible = len(c.feasible)+len(c.refusals), len(c.feasible)
	if d.feasible == 1 {
		d.node = c.feasible[0]
	} else if d.feasible > 1 {
		d.node = c.best()
		c.watch.passed(atScore, wentWell)
	}
	return d
}

// begin takes up a pod, and returns what preFilter does.
func (c *cycle) begin(p *snapshot.Pod) ([]*snapshot.Node, *unfit) {
	c.watch.attempt()
	c.pod, c.err = plugins.Cycle{Snapshot: c.snapshot, Pod: p}, nil
	c.memo = c.memos.of(c.snapshot.Shape(p), c.snapshot.Slots())
	nodes, no := c.preFilter()
	how := statusOf(c.err)
	if c.err == nil && no != nil && no.rejected != nil {
		how = wasRefused
	}
	c.watch.passed(atPreFilter, how)
	c.watch.had(atPreFilter, c.took.looking)
	return nodes, no
}

// find fills feasible with nodes that will do, or says why there is none. It is handed
// what preFilter returned.
func (c *cycle) find(nodes []*snapshot.Node, no *unfit) *unfit {
	c.feasible, c.refusals = c.feasible[:0], c.refusals[:0]
	if no != nil && no.rejected != nil {
		return no
	}
	if c.domain != nil {
		nodes, no = c.domain.narrow(nodes, no, c.snapshot.Len())
	}
	if n := c.pod.Pod.Nominated(); n != nil && c.domain.has(n) && c.filter(n) == nil {
		c.feasible = append(c.feasible, n)
		return nil
	}
	if no == nil {
		c.search(nodes)
	} else {
		for _, n := range nodes {
			c.look(n)
		}
	}
	if len(c.feasible) > 0 {
		return nil
	}
	if no == nil {
		no = &unfit{nodes: c.snapshot.Len()}
	}
	for i := range c.refusals {
		no.plugins |= 1 << c.refusals[i].reason.Plugin
	}
	no.refusals = c.refusals
	return no
}

// preFilter returns the nodes to look at. The unfit is not nil if that is not
// all of them.
func (c *cycle) preFilter() ([]*snapshot.Node, *unfit) {
	c.filters, c.took, c.local, c.alike, c.idle = c.filters[:0], part{}, 0, c.memo != nil, 0
	var names []string
	var narrowed uint32
	measured := c.watch.measures()
	for i, f := range c.plugins.Filters {
		var r plugins.PreFilterResult
		if pf := c.plugins.PreFilters[i]; pf != nil {
			c.took.looking |= 1 << i
			if measured {
				r = c.watch.preFilter(i, pf, &c.pod)
			} else {
				r = pf.PreFilter(&c.pod)
			}
		}
		if c.plugins.Apart&(1<<i) != 0 && !r.Skip {
			c.alike = false
		}
		if r.Reject != nil {
			if r.Reject.Err != nil {
				c.err = fmt.Errorf("running PreFilter plugin %q: %w", c.plugins.All[i].Name(), r.Reject.Err)
			}
			return nil, &unfit{nodes: c.snapshot.Len(), rejected: r.Reject, plugins: 1 << i}
		}
		if r.Idle {
			c.idle |= 1 << i
		}
		if r.Nodes != nil {
			names = intersect(names, r.Nodes)
			narrowed |= 1 << i
		}
		if f != nil && !r.Skip {
			if measured {
				f = c.watch.filter(i, f)
			}
			c.filters, c.took.filtering = append(c.filters, f), c.took.filtering|1<<i
			if i < c.plugins.Local {
				c.local++
			}
		}
	}
	if narrowed == 0 {
		return c.snapshot.Nodes(), nil
	}
	var nodes []*snapshot.Node
	for _, name := range names {
		if n := c.snapshot.Node(name); n != nil {
			nodes = append(nodes, n)
		}
	}
	return nodes, &unfit{nodes: c.snapshot.Len(), elsewhere: c.notNamed(narrowed), plugins: narrowed}
}

// intersect is the names in both; nil stands for all.
func intersect(a, b []string) []string {
	if a == nil {
		return b
	}
	return slices.DeleteFunc(slices.Clone(a), func(name string) bool { return !slices.Contains(b, name) })
}

// search looks at nodes from where the last search ended, until enough will do.
func (c *cycle) search(nodes []*snapshot.Node) {
	enough, looked := c.enough(len(nodes)), 0
	for ; looked < len(nodes) && len(c.feasible) < enough && c.err == nil; looked++ {
		i := c.start + looked
		if i >= len(nodes) {
			i %= len(nodes)
		}
		c.look(nodes[i])
	}
	c.start = (c.start + looked) % len(nodes)
}

// look filters one node.
func (c *cycle) look(n *snapshot.Node) {
	if why := c.filter(n); why != nil {
		c.refusals = append(c.refusals, refusal{n, why})
		if why.Err != nil {
			c.err = fmt.Errorf("running %q filter plugin: %w", c.plugins.All[why.Plugin].Name(), why.Err)
		}
	} else {
		c.feasible = append(c.feasible, n)
	}
}

// enough is how many of so many nodes are to be found.
func (c *cycle) enough(nodes int) int {
	if nodes < alwaysAllBelow {
		return nodes
	}
	percentage := c.percentage
	if percentage == 0 {
		percentage = max(50-nodes/125, lowestPercentage)
	}
	return max(nodes*percentage/100, alwaysAllBelow)
}

// filter returns why the pod cannot go to a node, or nil.
func (c *cycle) filter(n *snapshot.Node) *plugins.Reason {
	v := c.remembered(n)
	if v == nil {
		return c.filterAnew(n)
	}
	if v.edition != n.Edition {
		*v = verdict{edition: n.Edition, score: unscored}
		if len(n.Nominated) > 0 {
			v.why = c.filterAnew(n)
		} else {
			v.why = c.ask(c.filters[:c.local], n)
		}
	}
	if v.why != nil || c.local == len(c.filters) {
		return v.why
	}
	return c.ask(c.filters[c.local:], n)
}

// filterAnew is filter without what is remembered. Pods that hold a
// place on the node and are no less important count as if they were there already; but
// since they may never come, the pod must also do without them.
func (c *cycle) filterAnew(n *snapshot.Node) *plugins.Reason {
	if len(n.Nominated) == 0 {
		return c.ask(c.filters, n)
	}
	var held []*snapshot.Pod
	for _, p := range n.Nominated {
		if p != c.pod.Pod && p.Priority >= c.pod.Pod.Priority && p.Obj.UID != c.pod.Pod.Obj.UID {
			held = append(held, p)
		}
	}
	if len(held) == 0 {
		return c.ask(c.filters, n)
	}
	var why *plugins.Reason
	c.snapshot.Try(held, n, func() { why = c.ask(c.plugins.Filters, n) })
	if why != nil {
		return why
	}
	return c.ask(c.filters, n)
}

func (c *cycle) ask(filters []plugins.Filterer, n *snapshot.Node) *plugins.Reason {
	for _, f := range filters {
		if f == nil {
			continue
		}
		if why := f.Filter(&c.pod, n); why != nil {
			return why
		}
	}
	return nil
}

// resume takes up the decision about a pod again, among nodes that were found
// before: those that will do now are feasible.
func (c *cycle) resume(p *snapshot.Pod, nodes []*snapshot.Node) {
	c.feasible = c.feasible[:0]
	if _, no := c.begin(p); no != nil && no.rejected != nil {
		return
	}
	for _, n := range nodes {
		if n.Obj != nil && c.filter(n) == nil {
			c.feasible = append(c.feasible, n)
		}
	}
}

// best scores the feasible nodes and takes one of the best.
func (c *cycle) best() *snapshot.Node {
	c.score()
	return c.pick()
}

// pick takes one of the nodes with the best score, each with the same chance.
func (c *cycle) pick() *snapshot.Node {
	best, ties := c.total[0], 0
	for _, score := range c.total {
		if score > best {
			best, ties = score, 0
		}
		if score == best {
			ties++
		}
	}
	at := 0
	for skip := c.rand.IntN(ties); c.total[at] < best || skip > 0; at++ {
		if c.total[at] == best {
			skip--
		}
	}
	return c.feasible[at]
}

// score fills total.
func (c *cycle) score() {
	n := len(c.feasible)
	c.total = slices.Grow(c.total[:0], n)[:n]
	clear(c.total)
	c.scores = slices.Grow(c.scores[:0], n)[:n]
	if c.memo == nil {
		c.add(^uint32(0), c.feasible, c.total)
		return
	}
	c.add(^c.plugins.LocalScorers, c.feasible, c.total)
	c.scoreNodes()
}

// add asks plugins (bits by index) for their scores of nodes and adds these up.
func (c *cycle) add(which uint32, nodes []*snapshot.Node, total []int64) {
	for i, s := range c.plugins.Scorers {
		if s == nil || which&(1<<i) == 0 {
			continue
		}
		scores := c.scores[:len(nodes)]
		clear(scores)
		if !c.rate(i, s, nodes, scores) {
			continue
		}
		for j, v := range scores {
			total[j] += v * c.plugins.Weights[i]
		}
	}
}

// rate asks one plugin for its scores of nodes.
func (c *cycle) rate(i int, s plugins.Scorer, nodes []*snapshot.Node, scores []int64) bool {
	c.watch.had(atScore, 1<<i)
	if !c.watch.measures() {
		return s.Score(&c.pod, nodes, scores)
	}
	began := time.Now()
	rated := s.Score(&c.pod, nodes, scores)
	what := "Success"
	if !rated {
		what = "Skip"
	}
	c.watch.ran(i, atScore, what, began)
	return rated
}

// scoreNodes adds to total what follows from each node alone, as it is remembered.
func (c *cycle) scoreNodes() {
	c.fresh = c.fresh[:0]
	for i, n := range c.feasible {
		if v := &c.memo.nodes[n.Slot()]; v.edition == n.Edition && v.score != unscored {
			c.total[i] += v.score
		} else {
			c.fresh = append(c.fresh, n)
		}
	}
	if len(c.fresh) == 0 {
		return
	}
	c.rated = slices.Grow(c.rated[:0], len(c.fresh))[:len(c.fresh)]
	clear(c.rated)
	c.add(c.plugins.LocalScorers, c.fresh, c.rated)
	at := 0
	for i, n := range c.feasible {
		if at == len(c.fresh) || c.fresh[at] != n {
			continue
		}
		c.total[i] += c.rated[at]
		if v := &c.memo.nodes[n.Slot()]; v.edition == n.Edition {
			v.score = c.rated[at]
		}
		at++
	}
}
