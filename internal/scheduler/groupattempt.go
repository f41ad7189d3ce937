package scheduler

import (
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/scheduling"
	"github.com/kemudi/kemudi/internal/scheduler/plugins"
	"github.com/kemudi/kemudi/internal/scheduler/snapshot"
)

// attemptGroup tries to place the pods of a group that wait together, all that it needs
// or none (B8).
func (l *loop) attemptGroup(item *pending, started time.Time) {
	g := item.group
	waiting, placed := l.standing(g)
	ask := &gang{pods: make([]*snapshot.Pod, len(waiting)), least: scheduling.MinCount(g.obj), placed: placed, key: scheduling.TopologyKey(g.obj)}
	for i, p := range waiting {
		ask.pods[i] = p.pod
	}
	ask.value, ask.heard = l.domainOf(g, ask.key), l.hearings(g, waiting)
	by := waiting[0].by
	item.by = by
	for _, p := range waiting {
		if p.by != by {
			g.heard = nil
			l.groupFailed(item, waiting, fmt.Errorf("all pods in a single pod group should have the same .spec.schedulerName set, got: %q and %q", by.name, p.by.name), started)
			return
		}
	}
	t := &groupTrial{l: l, waiting: waiting, flights: make([]*flight, len(waiting)), started: started}
	d := by.gang(ask, t)
	if errors.Is(d.err, errAsks) {
		l.consultGroup(item, ask.ask, started)
		return
	}
	g.heard = nil
	l.metrics.groups.algorithm.Observe(time.Since(started).Seconds())
	if d.err == nil && d.message == "" && !t.again(&d) {
		d.message = "pod group is unschedulable"
	}
	switch {
	case d.err != nil:
		l.groupFailed(item, waiting, fmt.Errorf("failed to schedule other pod from a pod group: %w", d.err), started)
	case d.message != "":
		l.groupUnfit(item, ask, t, &d)
	default:
		l.groupPlaced(item, t, &d)
	}
}

// domainOf is the value of a label of the nodes on which pods of a group are; nil: none is
// on one that has it.
func (l *loop) domainOf(g *group, key string) *string {
	if key == "" {
		return nil
	}
	for uid := range g.members {
		if p := l.snapshot.Pod(uid); p != nil && p.Node().Obj != nil {
			if value, ok := p.Node().Obj.Labels[key]; ok {
				return &value
			}
		}
	}
	return nil
}

// groupTrial puts pods of a group on nodes as those are put that fly, plugins' reservations
// included, but sends nothing.
type groupTrial struct {
	l       *loop
	waiting []*pending
	flights []*flight // of those that are on a node
	started time.Time
}

var _ trial = (*groupTrial)(nil)

func (t *groupTrial) take(i int, n *snapshot.Node) *plugins.Reason {
	item := t.waiting[i]
	f := &flight{item: item, pod: item.pod, obj: item.pod.Obj, node: n, started: t.started, held: item.pod.Nominated()}
	t.l.snapshot.Nominate(f.pod, "")
	f.pod.Assumed = true
	t.l.snapshot.Add(f.pod, n.Name)
	t.flights[i] = f
	if f.idle = item.by.idle; !f.busy() {
		return nil
	}
	f.cycle = plugins.Cycle{Snapshot: t.l.snapshot, Pod: f.pod}
	why := t.l.reserve(f)
	if why != nil {
		t.back(i)
	}
	return why
}

// busy says that plugins have something to do with the pod before it is bound.
func (f *flight) busy() bool { return f.item.by.plugins.Busy(f.idle) }

func (t *groupTrial) back(i int) {
	f := t.flights[i]
	t.flights[i] = nil
	if f.busy() {
		t.l.land(f)
	}
	f.pod.Assumed = false
	t.l.snapshot.Remove(f.pod)
	if f.held != nil {
		t.l.snapshot.Nominate(f.pod, f.held.Name)
	}
}

// again takes what was decided, to keep it: all of it or nothing. What plugins note about a
// pod when they are asked is of the last one only, so they are asked anew.
func (t *groupTrial) again(d *gangDecision) bool {
	for i, n := range d.nodes {
		if n != nil && !t.settle(i, n) {
			t.allBack()
			return false
		}
	}
	return true
}

// settle puts a pod on a node that was found for it, if it still may be there.
func (t *groupTrial) settle(i int, n *snapshot.Node) bool {
	by := t.waiting[i].by
	by.resume(t.waiting[i].pod, []*snapshot.Node{n})
	return len(by.feasible) > 0 && t.take(i, n) == nil
}

func (t *groupTrial) allBack() {
	for i := len(t.flights) - 1; i >= 0; i-- {
		if t.flights[i] != nil {
			t.back(i)
		}
	}
}

// groupPlaced has those of a group bound that have their places.
func (l *loop) groupPlaced(item *pending, t *groupTrial, d *gangDecision) {
	g, now := item.group, time.Now()
	took := now.Sub(t.started)
	l.stateGroup(g, metav1.Condition{Type: schedulingv1beta1.PodGroupInitiallyScheduled, Status: metav1.ConditionTrue, Reason: "Scheduled"})
	l.metrics.groups.attempt(item.by, "scheduled", took)
	var left []*pending
	var refused uint32
	for i, p := range t.waiting {
		f := t.flights[i]
		if f == nil {
			left = append(left, p)
			refused |= d.why[i].plugins
			l.state(p, corev1.PodReasonUnschedulable, d.why[i].message)
			l.metrics.attempt(p.by, "unschedulable", took)
			continue
		}
		p.flight = f
		l.queue.depart(p, now)
		if f.held != nil && f.held != f.node {
			l.wake(plugins.Event{Kind: plugins.PodRemoved, Node: f.held, Pod: f.pod})
		}
		l.wake(plugins.Event{Kind: plugins.PodAdded, Node: f.node, Pod: f.pod})
	}
	item.failures = 0
	g.forms(left)
	if len(left) == 0 {
		l.queue.retire(item)
	} else {
		l.queue.refuse(item, refused, now)
	}
	l.groups.dirty[g] = struct{}{} // who is left may go alone now
	for _, f := range t.flights {
		switch {
		case f == nil || f.over:
		case !f.busy():
			l.bind(f)
		default:
			l.goOn(f)
		}
	}
}

// forms notes the pods that had no place, one of those that are alike.
func (g *group) forms(left []*pending) {
	clear(g.refused)
	g.refused = g.refused[:0]
	for _, p := range left {
		if n := len(g.refused); n == 0 || !alike(p.pod, g.refused[n-1]) {
			g.refused = append(g.refused, p.pod)
		}
	}
}

// groupUnfit puts a group aside that cannot be placed, and looks whether others could make
// room for all of it.
func (l *loop) groupUnfit(item *pending, ask *gang, t *groupTrial, d *gangDecision) {
	g, now := item.group, time.Now()
	var pre groupPreemption
	if item.by.plugins.Preempts {
		pre = l.preemptForGroup(g, ask, t)
		l.metrics.room.looked("podgroup", pre.nodes != nil, now)
		l.metrics.room.chose("podgroup", pre.violations)
		l.metrics.groups.preempted(&pre)
	}
	message := d.message
	switch {
	case pre.nodes != nil:
		message += fmt.Sprintf("; pod group preemption: found a placement for podgroup, preempting %d victims", len(pre.victims))
	case pre.message != "":
		message += "; pod group preemption: " + pre.message
	}
	var refused uint32
	var left []*pending
	for i, p := range t.waiting {
		refused |= d.why[i].plugins
		if d.nodes[i] == nil {
			left = append(left, p)
		}
		why := d.why[i].message
		if why == "" || pre.nodes != nil {
			why = message
		}
		if !pre.keep {
			l.promise(p, pre.nodes, i)
		}
		l.state(p, corev1.PodReasonUnschedulable, why)
		l.metrics.attempt(p.by, "unschedulable", now.Sub(t.started))
	}
	if refused == 0 {
		refused = anyEvent
	}
	g.forms(left)
	l.stateGroup(g, metav1.Condition{
		Type: schedulingv1beta1.PodGroupInitiallyScheduled, Status: metav1.ConditionFalse, Reason: schedulingv1beta1.PodGroupReasonUnschedulable, Message: message,
	})
	l.metrics.groups.attempt(item.by, "unschedulable", now.Sub(t.started))
	l.queue.refuse(item, refused, now)
	if l.evictAll(beneficiary{item: t.waiting[0], kind: "podgroup", uid: g.obj.UID}, pre.victims) {
		l.queue.wake(item, now)
	}
}

// promise holds the place for a pod of a group that it is to get, or none: then others may
// have the one that it held.
func (l *loop) promise(p *pending, nodes []*snapshot.Node, i int) {
	held := p.pod.Nominated()
	p.stated.nominated = ""
	l.snapshot.Nominate(p.pod, "")
	if nodes != nil && nodes[i] != nil {
		p.stated.nominated = nodes[i].Name
		l.snapshot.Nominate(p.pod, nodes[i].Name)
	} else if held != nil {
		l.wake(plugins.Event{Kind: plugins.PodRemoved, Node: held, Pod: p.pod})
	}
}

// groupFailed puts a group aside whose attempt failed for no fault of its own. Its pods keep the
// places that they hold if others of them are bound (B8).
func (l *loop) groupFailed(item *pending, waiting []*pending, err error, started time.Time) {
	_, placed := l.standing(item.group)
	for _, p := range waiting {
		p.stated.nominated = ""
		if placed == 0 {
			l.renounce(p.pod)
		}
		l.state(p, corev1.PodReasonSchedulerError, err.Error())
		l.metrics.attempt(p.by, "error", time.Since(started))
	}
	l.stateGroup(item.group, metav1.Condition{
		Type: schedulingv1beta1.PodGroupInitiallyScheduled, Status: metav1.ConditionFalse, Reason: schedulingv1beta1.PodGroupReasonSchedulerError, Message: err.Error(),
	})
	l.metrics.groups.attempt(item.by, "error", time.Since(started))
	l.queue.retry(item, time.Now())
}
