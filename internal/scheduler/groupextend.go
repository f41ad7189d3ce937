package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/scheduler/extender"
	"github.com/kemudi/kemudi/internal/scheduler/plugins"
	"github.com/kemudi/kemudi/internal/scheduler/snapshot"
)

// Extenders answer later than a turn may take, and a gang is decided about in one turn. So what
// they say is written down, pod by pod: a decision that comes to a pod of whose nodes nothing is known
// yet ends with the question, and is made anew with the answer, as if it had been known before.

// errAsks ends a decision about a gang: extenders are to be asked first.
var errAsks = errors.New("extenders are to be asked")

// hearing is what extenders say of one pod of a gang, by node.
type hearing map[string]opinion

// opinion is what extenders think of a pod on a node.
type opinion struct {
	passed bool
	why    extenderRefusal // if not; without a text: they do not say
	score  int64
}

// question is what extenders are to be asked: about a pod, and on which nodes.
type question struct {
	pod   *snapshot.Pod
	nodes []*snapshot.Node
}

// consults says whether extenders choose with us where a pod goes, or a pod of a group.
func (l *loop) consults(item *pending) bool {
	switch {
	case len(l.o.Config.Extenders) == 0:
		return false
	case item.group == nil:
		return l.mustConsult(item.pod.Obj)
	}
	waiting, _ := l.standing(item.group)
	return slices.ContainsFunc(waiting, func(p *pending) bool { return l.mustConsult(p.pod.Obj) })
}

// hearings are what extenders have said of the pods of a group, by pod, of those that they
// have a say in.
func (l *loop) hearings(g *group, waiting []*pending) map[types.UID]hearing {
	if len(l.o.Config.Extenders) == 0 {
		return nil
	}
	heard := map[types.UID]hearing{}
	for _, p := range waiting {
		if !l.mustConsult(p.pod.Obj) {
			continue
		}
		if heard[p.pod.Obj.UID] = g.heard[p.pod.Obj.UID]; heard[p.pod.Obj.UID] == nil {
			heard[p.pod.Obj.UID] = hearing{}
		}
	}
	g.heard = heard
	return heard
}

// heed chooses a node for a pod of a gang among those that extenders have passed. If there
// is none, and others would do, they are to be asked about these.
func (c *cycle) heed(g *gang, said hearing, p *snapshot.Pod) decision {
	if err := c.hopeless(p); err != nil {
		return decision{err: err}
	}
	if c.resume(p, said.passed(c.snapshot, c.domain)); len(c.feasible) > 0 {
		return decision{node: c.bestHeard(said), feasible: len(c.feasible)}
	}
	d := c.choice(c.begin(p))
	if d.node == nil {
		return d
	}
	var unheard []*snapshot.Node
	for _, n := range c.feasible {
		if _, heard := said[n.Name]; !heard {
			unheard = append(unheard, n)
		}
	}
	switch {
	case len(unheard) == 0:
		return decision{unfit: c.unheeded(said)}
	case g.guessing:
		return decision{node: unheard[0]}
	}
	g.ask = &question{p, unheard}
	return decision{err: errAsks}
}

// passed are the nodes of a domain that extenders have passed and that are still there, in the
// order of the snapshot.
func (h hearing) passed(s *snapshot.Snapshot, in *domain) (nodes []*snapshot.Node) {
	for _, n := range s.Nodes() {
		if h[n.Name].passed && in.has(n) {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// bestHeard is best, with what extenders find.
func (c *cycle) bestHeard(said hearing) *snapshot.Node {
	if len(c.feasible) == 1 {
		return c.feasible[0]
	}
	c.score()
	for i, n := range c.feasible {
		c.total[i] += said[n.Name].score
	}
	return c.pick()
}

// unheeded is why a pod has no node for which extenders have refused all that would do.
func (c *cycle) unheeded(said hearing) *unfit {
	u := &unfit{nodes: c.snapshot.Len(), refusals: slices.Clone(c.refusals), plugins: refusedByExtender}
	for i := range u.refusals {
		u.plugins |= 1 << u.refusals[i].reason.Plugin
	}
	reasons := map[extenderRefusal]*plugins.Reason{}
	for _, n := range c.feasible {
		if why := said[n.Name].why; why.text != "" {
			u.refusals = append(u.refusals, refusal{n, why.reason(reasons)})
		}
	}
	return u
}

// consultGroup asks extenders what a decision about a group has to know, and has it made anew.
func (l *loop) consultGroup(item *pending, q *question, started time.Time) {
	x := &consultation{item: item, pod: q.pod, asked: l.interested(q.pod.Obj), started: started}
	l.consulting = x
	p, nodes, said := q.pod.Obj, objectsOf(q.nodes), hearing{} // as they are now: the call must not look
	l.calls.add(&call{
		pod: callsOf(item.group), kind: askCall, limit: l.patience(x.asked),
		do: func(ctx context.Context) error { return said.fill(ctx, x.asked, p, nodes) },
		then: func(err error) {
			l.consulting = nil
			g := item.group
			switch waiting, _ := l.standing(g); {
			case item.place != flying || g.obj == nil || len(waiting) == 0:
				// It stands in the queue anew, or does not any more.
			case err != nil:
				g.heard = nil
				l.groupFailed(item, waiting, fmt.Errorf("failed to schedule other pod from a pod group: %w", err), started)
			default:
				l.hear(g, q.pod, said)
				l.attemptGroup(item, started)
			}
		},
	})
}

// hear writes down what extenders have said. A place that they refuse is not held any longer.
func (l *loop) hear(g *group, p *snapshot.Pod, said hearing) {
	before := g.heard[p.Obj.UID]
	if before == nil { // the pod asks for something else now, or has gone
		return
	}
	for name, o := range said {
		before[name] = o
		if n := p.Nominated(); n != nil && n.Name == name && !o.passed {
			l.renounce(p)
		}
	}
}

// fill asks extenders about a pod on nodes, one after the other.
func (h hearing) fill(ctx context.Context, list []*extender.Extender, p *corev1.Pod, nodes []*corev1.Node) error {
	failed := map[string]extenderRefusal{}
	passed, err := filterAll(ctx, having(list, (*extender.Extender).Filters), p, nodes, failed)
	if err != nil {
		return err
	}
	for _, n := range nodes {
		h[n.Name] = opinion{why: failed[n.Name]}
	}
	for _, n := range passed {
		h[n.Name] = opinion{passed: true}
	}
	if len(passed) == 0 {
		return nil
	}
	for name, score := range rateAll(ctx, having(list, (*extender.Extender).Prioritizes), p, passed) {
		if o, ok := h[name]; ok {
			o.score = score
			h[name] = o
		}
	}
	return nil
}
