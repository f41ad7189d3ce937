package scheduler

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/kemudi/kemudi/internal/scheduler/extender"
	"github.com/kemudi/kemudi/internal/scheduler/plugins"
	"github.com/kemudi/kemudi/internal/scheduler/snapshot"
)

// refusedByExtender marks, among the plugins that refused a pod, the extenders: any
// event may help.
const refusedByExtender = plugins.ByExtender

// consultation is an attempt that extenders have a say in. One is under way at a time,
// as extenders expect; pods that no extender is asked about do not wait for it.
//
//	decide -> filter -> score -> prioritize -> place
//
// What the cluster looks like may have changed while an extender was asked, so
// nodes are filtered again after each answer.
type consultation struct {
	item    *pending
	pod     *snapshot.Pod
	asked   []*extender.Extender
	started time.Time

	refusals []refusal // of nodes that the plugins refuse
	totals   map[*snapshot.Node]int64
}

// interested are the extenders that are asked about a pod.
func (l *loop) interested(p *corev1.Pod) (list []*extender.Extender) {
	for _, e := range l.o.Config.Extenders {
		if e.Interested(p) {
			list = append(list, e)
		}
	}
	return list
}

// having is those of a list that have a verb.
func having(list []*extender.Extender, verb func(*extender.Extender) bool) (out []*extender.Extender) {
	for _, e := range list {
		if verb(e) {
			out = append(out, e)
		}
	}
	return out
}

// nextToAsk takes a pod that extenders can be asked about now.
func (l *loop) nextToAsk() *pending {
	if l.consulting != nil {
		return nil
	}
	return l.queue.answer()
}

// mustConsult says whether extenders choose with us where a pod goes.
func (l *loop) mustConsult(p *corev1.Pod) bool {
	return slices.ContainsFunc(l.o.Config.Extenders, func(e *extender.Extender) bool {
		return (e.Filters() || e.Prioritizes()) && e.Interested(p)
	})
}

// consult goes on with a pod that the last decision has found nodes for.
func (l *loop) consult(item *pending, started time.Time) {
	x := &consultation{item: item, pod: item.pod, asked: l.interested(item.pod.Obj), started: started}
	x.refusals = slices.Clone(item.by.refusals)
	l.consulting = x
	nodes := slices.Clone(item.by.feasible)
	filters := having(x.asked, (*extender.Extender).Filters)
	if len(filters) == 0 {
		l.rate(x, nodes)
		return
	}
	p, objs := item.pod.Obj, objectsOf(nodes)
	var passed []*corev1.Node
	failed := map[string]extenderRefusal{}
	l.askExtenders(x, func(ctx context.Context) (err error) {
		passed, err = filterAll(ctx, filters, p, objs, failed)
		return err
	}, func() {
		if len(passed) == 0 {
			l.refusedByExtenders(x, nodes, failed)
			return
		}
		left := map[string]bool{}
		for _, n := range passed {
			left[n.Name] = true
		}
		l.rate(x, slices.DeleteFunc(nodes, func(n *snapshot.Node) bool { return !left[n.Name] }))
	})
}

func objectsOf(nodes []*snapshot.Node) []*corev1.Node {
	objs := make([]*corev1.Node, len(nodes))
	for i, n := range nodes {
		objs[i] = n.Obj
	}
	return objs
}

// extenderRefusal is why an extender refuses a node.
type extenderRefusal struct {
	text  string
	final bool
}

// reason makes a reason of a refusal, unless there is one among those that were made.
func (why extenderRefusal) reason(made map[extenderRefusal]*plugins.Reason) *plugins.Reason {
	if made[why] == nil {
		made[why] = &plugins.Reason{Texts: []string{why.text}, Final: why.final, Plugin: plugins.NoPlugin}
	}
	return made[why]
}

// filterAll asks one extender after the other, and notes why nodes fail.
func filterAll(ctx context.Context, list []*extender.Extender, p *corev1.Pod, nodes []*corev1.Node, failed map[string]extenderRefusal) ([]*corev1.Node, error) {
	for _, e := range list {
		if len(nodes) == 0 {
			break
		}
		f, err := e.Filter(ctx, p, nodes)
		if err != nil && e.Ignorable() {
			continue
		}
		if err != nil {
			return nil, err
		}
		for name, text := range f.Failed {
			failed[name] = extenderRefusal{text, false}
		}
		for name, text := range f.Final {
			failed[name] = extenderRefusal{text, true}
		}
		nodes = f.Passed
	}
	return nodes, nil
}

// askExtenders has extenders asked, and goes on if the pod still waits for the answer.
func (l *loop) askExtenders(x *consultation, do func(ctx context.Context) error, then func()) {
	l.calls.add(&call{
		pod: x.pod.Obj.UID, kind: askCall, limit: l.patience(x.asked),
		do: do,
		then: func(err error) {
			l.consulting = nil
			switch {
			case l.queue.get(x.pod.Obj.UID) != x.item || x.item.pod != x.pod || x.item.place != flying:
				// It is gone, or asks for something else now.
			case err != nil:
				l.failed(x.item, err, x.started)
			default:
				then()
			}
		},
	})
}

// patience is how long calls of extenders, one after the other, may take.
func (l *loop) patience(list []*extender.Extender) time.Duration {
	sum := time.Duration(0)
	for _, e := range list {
		sum += e.Client.Timeout
	}
	return sum + callDeadline
}

// refusedByExtenders puts a pod aside that extenders leave no node.
func (l *loop) refusedByExtenders(x *consultation, nodes []*snapshot.Node, failed map[string]extenderRefusal) {
	reasons := map[extenderRefusal]*plugins.Reason{}
	u := &unfit{nodes: l.snapshot.Len(), refusals: x.refusals, plugins: refusedByExtender}
	for _, r := range x.refusals {
		u.plugins |= 1 << r.reason.Plugin
	}
	for _, n := range nodes {
		why, ok := failed[n.Name]
		if !ok || n.Obj == nil {
			continue
		}
		u.refusals = append(u.refusals, refusal{n, why.reason(reasons)})
	}
	x.item.by.begin(x.pod) // for the filters of preemption
	l.unfit(x.item, u)
	l.metrics.attempt(x.item.by, "unschedulable", time.Since(x.started))
}

// rate scores what extenders have left of the nodes, and asks how good they find them.
func (l *loop) rate(x *consultation, nodes []*snapshot.Node) {
	by := x.item.by
	by.resume(x.pod, nodes)
	raters := having(x.asked, (*extender.Extender).Prioritizes)
	if len(by.feasible) < 2 || len(raters) == 0 {
		l.settle(x)
		return
	}
	by.score()
	nodes, x.totals = slices.Clone(by.feasible), map[*snapshot.Node]int64{}
	for i, n := range nodes {
		x.totals[n] = by.total[i]
	}
	p, objs := x.pod.Obj, objectsOf(nodes)
	var more map[string]int64
	l.consulting = x
	l.askExtenders(x, func(ctx context.Context) error {
		more = rateAll(ctx, raters, p, objs)
		return nil
	}, func() {
		for n := range x.totals {
			x.totals[n] += more[n.Name]
		}
		by.resume(x.pod, nodes)
		l.settle(x)
	})
}

// rateAll adds up how good extenders find nodes.
func rateAll(ctx context.Context, raters []*extender.Extender, p *corev1.Pod, nodes []*corev1.Node) map[string]int64 {
	sum := map[string]int64{}
	for _, e := range raters {
		scores, err := e.Prioritize(ctx, p, nodes)
		if err != nil {
			continue // its opinion is not needed
		}
		for name, s := range scores {
			sum[name] += s
		}
	}
	return sum
}

// settle places the pod on the best of the feasible nodes; if none is left, it is
// tried anew.
func (l *loop) settle(x *consultation) {
	l.consulting = nil
	by := x.item.by
	switch {
	case len(by.feasible) == 0:
		l.queue.again(x.item)
		return
	case len(by.feasible) == 1:
		by.total = append(by.total[:0], 0)
	case x.totals == nil:
		by.score()
	default:
		by.total = by.total[:0]
		for _, n := range by.feasible {
			by.total = append(by.total, x.totals[n])
		}
	}
	l.place(x.item, by.pick(), x.started)
}

// bindBy has an extender bind a pod; done is false if none does, and we have to.
func (l *loop) bindBy(ctx context.Context, p *corev1.Pod, b *corev1.Binding) (done bool, err error) {
	for _, e := range l.o.Config.Extenders {
		if !e.Binds() || !e.Interested(p) {
			continue
		}
		if err := e.Bind(ctx, b); err == nil || !e.Ignorable() {
			return true, err
		}
	}
	return false, nil
}

// consultVictims asks extenders which nodes to consider for preemption, and goes on
// with the best of them.
func (l *loop) consultVictims(item *pending, s setback, asked []*extender.Extender, list []*candidate) {
	x := &consultation{item: item, pod: item.pod, asked: asked, started: time.Now()}
	l.consulting = x
	victims := map[string]*extenderv1.Victims{}
	for _, cand := range list {
		v := &extenderv1.Victims{NumPDBViolations: int64(cand.violations)}
		for _, p := range cand.victims {
			v.Pods = append(v.Pods, p.Obj)
		}
		victims[cand.node.Name] = v
	}
	var chosen map[string]*extenderv1.MetaVictims
	p, pods := x.pod.Obj, podsByUID(l.snapshot, list)
	l.askExtenders(x, func(ctx context.Context) (err error) {
		chosen, err = consider(ctx, asked, p, victims, pods)
		return err
	}, func() {
		var best *candidate
		for _, name := range slices.Sorted(maps.Keys(chosen)) {
			cand := l.candidateOf(name, chosen[name])
			if cand != nil && (best == nil || cand.better(best)) {
				best = cand
			}
		}
		if best != nil {
			l.preempted(item, s, best.preemption())
			return
		}
		s.unhelped(preemption{message: available(l.snapshot.Len(), map[*plugins.Reason]int{notHelpful: l.snapshot.Len()})})
		l.leave(item, s)
	})
}

// podsByUID are the pods on the candidates' nodes: those that extenders may name.
func podsByUID(s *snapshot.Snapshot, list []*candidate) map[string]map[string]*corev1.Pod {
	nodes := map[string]map[string]*corev1.Pod{}
	for _, cand := range list {
		pods := map[string]*corev1.Pod{}
		for _, p := range cand.node.Pods {
			pods[string(p.Obj.UID)] = p.Obj
		}
		nodes[cand.node.Name] = pods
	}
	return nodes
}

// consider asks one extender after the other, each about what the last one left.
func consider(ctx context.Context, list []*extender.Extender, p *corev1.Pod, victims map[string]*extenderv1.Victims, pods map[string]map[string]*corev1.Pod) (map[string]*extenderv1.MetaVictims, error) {
	chosen := map[string]*extenderv1.MetaVictims{}
	for node, v := range victims {
		chosen[node] = &extenderv1.MetaVictims{NumPDBViolations: v.NumPDBViolations}
		for _, p := range v.Pods {
			chosen[node].Pods = append(chosen[node].Pods, &extenderv1.MetaPod{UID: string(p.UID)})
		}
	}
	for _, e := range list {
		answer, err := e.Preempt(ctx, p, victims)
		if err == nil {
			var next map[string]*extenderv1.Victims
			if next, err = known(e, answer, pods); err == nil {
				chosen, victims = answer, next
			}
		}
		if err != nil && !e.Ignorable() {
			return nil, err
		}
		if len(chosen) == 0 {
			break
		}
	}
	return chosen, nil
}

// known checks that the nodes that an extender names were candidates, and the pods are on them.
func known(e *extender.Extender, answer map[string]*extenderv1.MetaVictims, pods map[string]map[string]*corev1.Pod) (map[string]*extenderv1.Victims, error) {
	out := map[string]*extenderv1.Victims{}
	for node, v := range answer {
		on, ok := pods[node]
		if !ok {
			return nil, fmt.Errorf("extender: %v claims to preempt pods on node: %v, which was not a candidate", e.Name(), node)
		}
		out[node] = &extenderv1.Victims{NumPDBViolations: v.NumPDBViolations}
		for _, meta := range v.Pods {
			if meta == nil {
				return nil, errors.New("extender: " + e.Name() + " names a victim that is null")
			}
			p := on[meta.UID]
			if p == nil {
				return nil, fmt.Errorf("extender: %v claims to preempt pod (UID: %v) on node: %v, but the pod is not found on that node", e.Name(), meta.UID, node)
			}
			out[node].Pods = append(out[node].Pods, p)
		}
	}
	return out, nil
}

// candidateOf is a node with victims that extenders chose, those that are still there;
// nil if the node is gone.
func (l *loop) candidateOf(node string, v *extenderv1.MetaVictims) *candidate {
	n := l.snapshot.Node(node)
	if n == nil {
		return nil
	}
	cand := &candidate{node: n, violations: int(v.NumPDBViolations)}
	for _, p := range n.Pods {
		if slices.ContainsFunc(v.Pods, func(m *extenderv1.MetaPod) bool { return m.UID == string(p.Obj.UID) }) {
			cand.victims = append(cand.victims, p)
		}
	}
	slices.SortStableFunc(cand.victims, byImportance)
	cand.cost = costOf(cand.victims)
	return cand
}
