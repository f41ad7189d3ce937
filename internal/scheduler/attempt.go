package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/scheduler/extender"
	"github.com/kemudi/kemudi/internal/scheduler/plugins"
	"github.com/kemudi/kemudi/internal/scheduler/snapshot"
)

// anyEvent is for pods that wait for whatever happens.
const anyEvent = ^uint32(0)

// attempt tries to find a node for a pod, and to bind it there.
func (l *loop) attempt(item *pending) {
	started := time.Now()
	consults := l.consults(item)
	if consults && l.consulting != nil {
		l.queue.ask(item)
		return
	}
	if started.Sub(l.swept) >= sweepEvery {
		l.snapshot.Sweep()
		l.forget()
		l.swept = started
	}
	l.tried = started
	if item.group != nil {
		l.attemptGroup(item, started)
		return
	}
	d := item.by.decide(item.pod)
	l.metrics.algorithm.Observe(time.Since(started).Seconds())
	switch {
	case d.node != nil:
		l.log.Debug("found node", "pod", nameOf(item.pod.Obj), "node", d.node.Name, "evaluated", d.evaluated, "feasible", d.feasible)
		if consults {
			l.consult(item, started)
			return
		}
		l.place(item, d.node, started)
	case d.setback != nil:
		if item.by.plugins.Preempts {
			l.metrics.preemption.Inc()
		}
		l.leave(item, *d.setback)
		l.metrics.attempt(item.by, "unschedulable", time.Since(started))
	case d.unfit != nil:
		l.unfit(item, d.unfit)
		l.metrics.attempt(item.by, "unschedulable", time.Since(started))
	case errors.Is(d.err, errNoNodes):
		l.leave(item, setback{message: d.err.Error(), plugins: anyEvent})
		l.metrics.attempt(item.by, "unschedulable", time.Since(started))
	default:
		l.failed(item, d.err, started)
	}
}

func nameOf(p *corev1.Pod) string { return p.Namespace + "/" + p.Name }

// unfit puts a pod aside that fits nowhere, and looks whether others could make
// room for it.
func (l *loop) unfit(item *pending, u *unfit) {
	item.by.watch.begin()
	s := setback{message: u.message(), plugins: u.plugins, note: l.postFilter(item)}
	if !item.by.plugins.Preempts {
		s.keep = true
		if s.note != "" {
			s.message += " " + s.note
		}
		l.leaveAs(item, s)
		return
	}
	l.metrics.preemption.Inc()
	asked := having(l.interested(item.pod.Obj), (*extender.Extender).Preempts)
	began := time.Now()
	pre, list := item.by.preempt(u)
	l.metrics.room.looked("pod", pre.node != nil, began)
	how, why := wentWell, (*plugins.Reason)(nil)
	if pre.node == nil {
		how, why = wasRefused, notHelpful
	}
	if item.by.watch.measures() {
		item.by.watch.answered(plugins.NoPlugin, atPostFilter, why, began)
	}
	item.by.watch.passed(atPostFilter, how)
	s.keep = pre.keep
	if len(asked) > 0 && len(list) > 0 {
		l.consultVictims(item, s, asked, list)
		return
	}
	if pre.node != nil {
		l.preempted(item, s, pre)
		return
	}
	s.unhelped(pre)
	l.leaveAs(item, s)
}

// leaveAs puts a pod aside that fits nowhere, as others of its shape will be.
func (l *loop) leaveAs(item *pending, s setback) {
	if s.note == "" {
		item.by.stands(s)
	}
	l.leave(item, s)
}

// unhelped adds why preemption does not help.
func (s *setback) unhelped(pre preemption) {
	if s.note != "" {
		s.message += " " + s.note + ","
	}
	s.message += " preemption: " + pre.message
}

// postFilter has plugins do what they can for a pod that fits nowhere, and returns what
// they say about it.
func (l *loop) postFilter(item *pending) (note string) {
	for _, p := range item.by.plugins.PostFilters {
		says, work := p.PostFilter(&item.by.pod)
		if says != "" && note != "" {
			note += ", "
		}
		note += says
		l.besides(item.pod.Obj, work)
	}
	return note
}

// besides has work done for a pod on which nothing that becomes of it depends.
func (l *loop) besides(p *corev1.Pod, work plugins.Work) {
	if work.Do == nil {
		return
	}
	l.calls.add(&call{
		pod: p.UID, kind: evictCall,
		do: func(ctx context.Context) error { return work.Do(ctx, l.o.Transport) },
		then: func(err error) {
			l.workDone(work, err)
			if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
				l.log.Warn("clear up for pod", "pod", nameOf(p), "err", err)
			}
		},
	})
}

// workDone tells a plugin that its work has ended.
func (l *loop) workDone(work plugins.Work, err error) {
	if work.Done != nil && work.Done(err) {
		l.wake(plugins.Event{Kind: plugins.ResourceClaimChanged, Freed: true})
	}
}

// setback is why a pod fits nowhere, and which plugins say so.
type setback struct {
	message string
	plugins uint32
	keep    bool   // the pod keeps the place that it holds
	note    string // of plugins that have done what they could
}

// leave puts a pod aside that fits nowhere and for which nothing can be done.
func (l *loop) leave(item *pending, s setback) {
	if !s.keep {
		l.renounce(item.pod)
		item.stated.nominated = ""
	}
	l.queue.refuse(item, s.plugins, time.Now())
	l.state(item, corev1.PodReasonUnschedulable, s.message)
}

// renounce takes from a pod the place that it holds, if it holds one, and has those tried that it kept from there.
func (l *loop) renounce(p *snapshot.Pod) {
	if n := p.Nominated(); n != nil {
		l.snapshot.Nominate(p, "")
		l.wake(plugins.Event{Kind: plugins.PodRemoved, Node: n, Pod: p})
	}
}

// preempted puts a pod aside that fits nowhere, having made room for it.
func (l *loop) preempted(item *pending, s setback, pre preemption) {
	atOnce := l.makeRoom(item, pre)
	item.stated.nominated = pre.node.Name
	s.keep = true
	s.message += fmt.Sprintf(" preemption: found a potential placement for pod on node %s, preempting %d victims", pre.node.Name, len(pre.victims))
	l.leave(item, s)
	if atOnce {
		l.rouse(item)
	}
}

// failed puts a pod aside whose attempt failed for no fault of its own.
func (l *loop) failed(item *pending, err error, started time.Time) {
	if !item.together { // its group decides about the place that it holds
		l.renounce(item.pod)
	}
	item.stated.nominated = ""
	l.queue.retry(item, time.Now())
	l.state(item, corev1.PodReasonSchedulerError, err.Error())
	l.metrics.attempt(item.by, "error", time.Since(started))
}

// statedIn is what a pod's status says about its scheduling.
func statedIn(p *corev1.Pod) stated {
	s := stated{nominated: p.Status.NominatedNodeName}
	if c := core.PodCondition(&p.Status, corev1.PodScheduled); c != nil && c.Status == corev1.ConditionFalse {
		s.reason, s.message = c.Reason, c.Message
	}
	return s
}

// state tells people why a pod has no node, by an event and in its status.
func (l *loop) state(item *pending, reason, message string) {
	obj := item.pod.Obj
	item.by.events.Event(client.Deed{Object: obj, Action: "Scheduling"}, corev1.EventTypeWarning, "FailedScheduling", truncate(message))
	item.stated.reason, item.stated.message = reason, message
	if item.stated == statedIn(obj) {
		return
	}
	l.sendState(item)
}

// sendState writes what is stated of a pod to its status.
func (l *loop) sendState(item *pending) {
	obj, say := item.pod.Obj, item.stated
	status := map[string]any{"nominatedNodeName": nil}
	if say.nominated != "" {
		status["nominatedNodeName"] = say.nominated
	}
	if say.reason != "" {
		status["conditions"] = []corev1.PodCondition{condition(obj, corev1.PodCondition{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: say.reason, Message: say.message,
		})}
	}
	l.calls.add(&call{
		pod: obj.UID, kind: stateCall,
		do: func(ctx context.Context) error { return patchStatus(ctx, l.pods, obj, status) },
		then: func(err error) {
			if err != nil && !apierrors.IsNotFound(err) {
				l.log.Warn("write why pod is not scheduled", "pod", nameOf(obj), "err", err)
				if item := l.queue.get(obj.UID); item != nil && item.stated == say {
					item.stated = statedIn(item.pod.Obj) // so that it is written the next time
				}
			}
		},
	})
}

// condition completes a condition that is to replace the pod's.
func condition(p *corev1.Pod, c corev1.PodCondition) corev1.PodCondition {
	c.ObservedGeneration = p.Generation
	c.LastTransitionTime = metav1.Now()
	if old := core.PodCondition(&p.Status, c.Type); old != nil && old.Status == c.Status {
		c.LastTransitionTime = old.LastTransitionTime
	}
	return c
}

// patchStatus changes parts of the status of exactly this pod, not of another
// with its name.
func patchStatus(ctx context.Context, pods client.Client[*corev1.Pod], p *corev1.Pod, status map[string]any) error {
	data, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": p.UID}, "status": status})
	if err != nil {
		return fmt.Errorf("encode status patch: %w", err)
	}
	_, err = pods.Patch(ctx, p.Namespace, p.Name, "status", client.Patch{Type: types.StrategicMergePatchType, Data: data})
	return err
}

// makeRoom nominates the pod for a node and asks for the deletion of those who
// have to go. It reports whether some have left at once.
func (l *loop) makeRoom(item *pending, pre preemption) (atOnce bool) {
	l.metrics.victims.Observe(float64(len(pre.victims)))
	l.metrics.room.chose("pod", pre.violations)
	atOnce = l.evictAll(beneficiary{item: item, kind: "pod", uid: item.pod.Obj.UID}, l.whole(pre.victims))
	l.snapshot.Nominate(item.pod, pre.node.Name)
	for _, other := range slices.Clone(pre.node.Nominated) {
		if other.Priority >= item.pod.Priority {
			continue
		}
		l.renounce(other)
		if waiting := l.queue.get(other.Obj.UID); waiting != nil {
			waiting.stated.nominated = ""
			l.sendState(waiting)
			l.rouse(waiting)
		}
	}
	return atOnce
}

// beneficiary is for whom pods are evicted.
type beneficiary struct {
	item  *pending
	kind  string // pod or podgroup
	uid   types.UID
	round *round
}

// why is what is said to those that are evicted.
func (b *beneficiary) why() string {
	return b.item.pod.Obj.Spec.SchedulerName + ": preempting to accommodate a higher priority " + b.kind
}

// tell tells people that a pod has to go from its node, and how if that is not all.
func (b *beneficiary) tell(victim *corev1.Pod, node, how string) {
	deed := client.Deed{Object: victim, Action: "Preempting", Related: b.item.pod.Obj}
	b.item.by.events.Event(deed, corev1.EventTypeNormal, "Preempted", fmt.Sprintf("Preempted by %s %s on node %s", b.kind, b.uid, node)+how)
}

// evictAll asks for the deletion of pods, of so many at once; those that have not been bound yet lose their
// places. It reports whether there are some.
func (l *loop) evictAll(by beneficiary, victims []*snapshot.Pod) (unbound bool) {
	some := &few{free: l.o.Config.Parallelism}
	l.disrupted(&by, victims)
	victims = slices.DeleteFunc(slices.Clone(victims), func(v *snapshot.Pod) bool { return v.Terminating })
	by.round = &round{watch: l.metrics.room, preemptor: by.kind, began: time.Now(), left: len(victims)}
	for _, v := range victims {
		if l.unbind(&by, v) {
			by.round.evicted(nil)
			unbound = true
		} else {
			l.evict(&by, v, some)
		}
	}
	return unbound
}

// evict deletes a victim, having said why in its status.
func (l *loop) evict(by *beneficiary, v *snapshot.Pod, one *few) {
	v.Victim = true
	victim, obj, node := v.Obj, by.item.pod.Obj, v.Node().Name
	status := map[string]any{"conditions": []corev1.PodCondition{condition(victim, corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonPreemptionByScheduler,
		Message: by.why(),
	})}}
	l.calls.add(&call{
		pod: victim.UID, kind: evictCall, few: one,
		do: func(ctx context.Context) error {
			if err := patchStatus(ctx, l.pods, victim, status); err != nil {
				return fmt.Errorf("say why pod %s is preempted: %w", nameOf(victim), err)
			}
			uid := victim.UID
			return l.pods.Delete(ctx, victim.Namespace, victim.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
		},
		then: func(err error) {
			by.round.evicted(err)
			switch {
			case err == nil:
				by.tell(victim, node, "")
			case apierrors.IsNotFound(err):
			default:
				v.Victim = false
				l.log.Error("preempt pod", "pod", nameOf(victim), "err", err)
				if waiting := l.queue.get(obj.UID); waiting != nil {
					l.rouse(waiting)
				}
			}
		},
	})
}
