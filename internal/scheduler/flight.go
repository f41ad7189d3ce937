package scheduler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/scheduler/extender"
	"github.com/kemudi/kemudi/internal/scheduler/plugins"
	"github.com/kemudi/kemudi/internal/scheduler/snapshot"
)

// flight is the way of a pod from its place on a node to its binding there:
//
//	reserve, permit -> wait -> for each plugin: pre-bind -> wait -> bind -> post-bind
//
// What fails before the end takes the place back (B5).
type flight struct {
	item    *pending
	pod     *snapshot.Pod
	obj     *corev1.Pod // as it was when it got its place
	node    *snapshot.Node
	started time.Time
	held    *snapshot.Node // of a group's pod: where it held a place before; nil: nowhere
	cycle   plugins.Cycle
	idle    uint32 // plugins that have nothing to do with it, by index

	prepared  int       // plugins that have pre-bound it, or need not
	permitted time.Time // when its pre-binding began
	waits     []waiting // none: it can go on
	sent      bool      // its binding has been
	over      bool      // bound, failed or given up
}

// waiting is what a plugin makes a flight wait for.
type waiting struct {
	plugins.Wait
	plugin int // index in the set
	since  time.Time
}

// until is when the wait ends in any case.
func (w *waiting) until() time.Time { return w.since.Add(w.For) }

// held is the flights that wait.
type held struct {
	flights map[*flight]struct{}
	events  plugins.Events // since they were asked
}

func newHeld() held { return held{flights: map[*flight]struct{}{}} }

// next is when the first wait ends in any case; zero: never.
func (h *held) next() (next time.Time) {
	for f := range h.flights {
		for _, w := range f.waits {
			if until := w.until(); next.IsZero() || until.Before(next) {
				next = until
			}
		}
	}
	return next
}

// place gives a pod its place on a node, before anything is sent (B1).
func (l *loop) place(item *pending, n *snapshot.Node, started time.Time) {
	f := &flight{item: item, pod: item.pod, obj: item.pod.Obj, node: n, started: started}
	item.flight = f
	if f.pod.Nominated() != n {
		l.renounce(f.pod)
	}
	l.snapshot.Nominate(f.pod, "")
	f.pod.Assumed = true
	l.snapshot.Add(f.pod, n.Name)
	l.wake(plugins.Event{Kind: plugins.PodAdded, Node: n, Pod: f.pod})
	if f.idle = item.by.idle; !item.by.plugins.Busy(f.idle) {
		l.bind(f)
		return
	}
	f.cycle = plugins.Cycle{Snapshot: l.snapshot, Pod: f.pod}
	item.by.watch.begin()
	if why := l.reserve(f); why != nil {
		l.reject(f, why)
		return
	}
	l.expect(f)
	l.goOn(f)
}

// expect says in a pod's status where it will be bound when all is ready there: who adds nodes
// for pods that have none need not care for it (KEP-5278).
func (l *loop) expect(f *flight) {
	obj, node := f.obj, f.node.Name
	if obj.Status.NominatedNodeName == node {
		return
	}
	l.calls.add(&call{
		pod: obj.UID, kind: bindCall,
		do: func(ctx context.Context) error {
			return patchStatus(ctx, l.pods, obj, map[string]any{"nominatedNodeName": node})
		},
		then: func(err error) {
			if err != nil && !apierrors.IsNotFound(err) {
				l.log.Warn("write where pod is expected", "pod", nameOf(obj), "err", err)
			}
		},
	})
}

// reserve asks the plugins whether the pod may have its place, and what it has
// to wait for there.
func (l *loop) reserve(f *flight) *plugins.Reason {
	late, watch := f.item.by.plugins.Late, f.item.by.watch
	for i := range late {
		if p := &late[i]; p.Reserver != nil && !p.Idle(f.idle) {
			began := watch.clock()
			why := p.Reserve(&f.cycle, f.node)
			watch.answered(p.Plugin, atReserve, why, began)
			if why != nil {
				watch.passed(atReserve, wasRefused)
				return why
			}
		}
	}
	watch.passed(atReserve, wentWell)
	for i := range late {
		p := &late[i]
		if p.Permitter == nil || p.Idle(f.idle) {
			continue
		}
		began := watch.clock()
		wait, why := p.Permit(&f.cycle, f.node)
		watch.answered(p.Plugin, atPermit, why, began)
		if why != nil {
			watch.passed(atPermit, wasRefused)
			return why
		}
		l.hold(f, wait, p.Plugin)
	}
	watch.passed(atPermit, wentWell)
	return nil
}

// hold makes a flight wait for what a plugin says.
func (l *loop) hold(f *flight, w plugins.Wait, plugin int) {
	if w.Over == nil {
		return
	}
	f.waits = append(f.waits, waiting{Wait: w, plugin: plugin, since: time.Now()})
	l.held.flights[f] = struct{}{}
}

// proceed has those go on who need not wait any more.
func (l *loop) proceed(now time.Time) {
	events := l.held.events
	l.held.events = 0
	if len(l.held.flights) == 0 {
		return
	}
	for f := range l.held.flights {
		if !f.over && l.ask(f, events, now) {
			l.goOn(f)
		}
	}
}

// ask asks the plugins for which a flight waits whether that is over, if one
// of these events happened, and reports whether it waits no more. A wait that has failed
// ends the flight.
func (l *loop) ask(f *flight, events plugins.Events, now time.Time) bool {
	still := f.waits[:0]
	for _, w := range f.waits {
		late := !now.Before(w.until())
		if late || f.item.by.plugins.Moves(w.plugin, events) {
			over, err := w.Over()
			if err == nil && !over && late {
				err = cmp.Or[error](w.Late, errTooLate{w.For, f.item.by.plugins.All[w.plugin].Name()})
			}
			if over || err != nil {
				l.metrics.waited(f.item.by, &w, now, err)
				if f.prepared == 0 {
					l.metrics.permitted(&w, now, err)
				}
			}
			if err != nil {
				l.waitFailed(f, w.plugin, err)
				return false
			}
			if over {
				continue
			}
		}
		still = append(still, w)
	}
	clear(f.waits[len(still):])
	f.waits = still
	for i := range still {
		if note := still[i].Note; note != nil {
			f.item.by.events.Event(client.Deed{Object: f.obj, Action: "Scheduling"}, corev1.EventTypeNormal, note.Reason, note.Message)
			still[i].Note = nil
		}
	}
	return len(still) == 0
}

// errTooLate is the end of a wait by the clock.
type errTooLate struct {
	waited time.Duration
	plugin string
}

func (e errTooLate) Error() string {
	return fmt.Sprintf("rejected due to timeout after waiting %v at plugin %s", e.waited, e.plugin)
}

// waitFailed ends a flight: what did not permit it refused the pod; what did
// not become ready is an error.
func (l *loop) waitFailed(f *flight, plugin int, err error) {
	if f.prepared == 0 {
		l.reject(f, &plugins.Reason{Texts: []string{err.Error()}, Plugin: plugin})
		return
	}
	l.fail(f, preBinding(f.item.by.plugins.All[plugin], err))
}

func preBinding(p plugins.Plugin, err error) error {
	return fmt.Errorf("running PreBind plugin %q: %w", p.Name(), err)
}

// goOn takes a flight that does not wait to the next thing to do.
func (l *loop) goOn(f *flight) {
	late := f.item.by.plugins.Late
	for len(f.waits) == 0 {
		delete(l.held.flights, f)
		if f.prepared == len(late) {
			f.item.by.watch.took(atPreBind, wentWell, time.Since(f.permitted))
			l.bind(f)
			return
		}
		if f.prepared == 0 {
			f.permitted = time.Now()
		}
		p := &late[f.prepared]
		f.prepared++
		if p.PreBinder == nil || p.Idle(f.idle) {
			continue
		}
		work := p.PreBind(&f.cycle, f.node)
		if work.Do != nil {
			l.prepare(f, p.Plugin, work)
			return
		}
		l.hold(f, work.Wait, p.Plugin)
		if len(f.waits) > 0 && !l.ask(f, ^plugins.Events(0), time.Now()) {
			return
		}
	}
}

// prepare has the work of a plugin done.
func (l *loop) prepare(f *flight, plugin int, work plugins.Work) {
	l.calls.add(&call{
		pod: f.obj.UID, kind: bindCall,
		do: func(ctx context.Context) error { return work.Do(ctx, l.o.Transport) },
		then: func(err error) {
			l.workDone(work, err)
			switch {
			case f.over:
			case err != nil:
				l.fail(f, preBinding(f.item.by.plugins.All[plugin], err))
			default:
				l.hold(f, work.Wait, plugin)
				if len(f.waits) == 0 || l.ask(f, ^plugins.Events(0), time.Now()) {
					l.goOn(f)
				}
			}
		},
	})
}

// bind sends the binding.
func (l *loop) bind(f *flight) {
	obj, node := f.obj, f.node.Name
	began := time.Now()
	f.sent = true
	l.calls.add(&call{
		pod: obj.UID, kind: bindCall, limit: l.patience(having(l.o.Config.Extenders, (*extender.Extender).Binds)),
		do: func(ctx context.Context) error {
			b := &corev1.Binding{
				ObjectMeta: metav1.ObjectMeta{Namespace: obj.Namespace, Name: obj.Name, UID: obj.UID},
				Target:     corev1.ObjectReference{Kind: "Node", Name: node},
			}
			if done, err := l.bindBy(ctx, obj, b); done {
				return err
			}
			return plugins.Persist(ctx, func() error {
				_, err := l.pods.Post(ctx, obj.Namespace, obj.Name, "binding", b)
				return err
			})
		},
		then: func(err error) {
			f.item.by.watch.took(atBind, statusOf(err), time.Since(began))
			switch {
			case err == nil:
				l.bound(f)
			// The cache is behind, or the pod goes with its namespace: say nothing yet.
			case apierrors.IsNotFound(err), apierrors.IsConflict(err), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
				if l.takeBack(f) {
					l.queue.retry(f.item, time.Now())
					l.metrics.attempt(f.item.by, "error", time.Since(f.started))
				}
			default:
				l.fail(f, fmt.Errorf("binding rejected: %w", err))
			}
		},
	})
}

func (l *loop) bound(f *flight) {
	f.item.by.events.Event(client.Deed{Object: f.obj, Action: "Binding"}, corev1.EventTypeNormal, "Scheduled", fmt.Sprintf("Successfully assigned %s to %s", nameOf(f.obj), f.node.Name))
	l.metrics.bound(f.item)
	l.metrics.attempt(f.item.by, "scheduled", time.Since(f.started))
	if !f.over {
		f.over = true
		late := f.item.by.plugins.Late
		for i := range late {
			if p := &late[i]; p.PostBinder != nil && !p.Idle(f.idle) {
				p.PostBind(f.pod, f.node)
			}
		}
	}
	if l.queue.get(f.obj.UID) == f.item {
		l.queue.remove(f.item)
	}
}

// land ends a flight that has not reached its end: plugins give back what they
// keep for it (B5).
func (l *loop) land(f *flight) {
	if f.over {
		return
	}
	f.over, f.waits = true, nil
	delete(l.held.flights, f)
	late := f.item.by.plugins.Late
	for i := len(late) - 1; i >= 0; i-- {
		if late[i].Reserver != nil && !late[i].Idle(f.idle) {
			late[i].Unreserve(f.pod, f.node)
		}
	}
	for i := range late {
		if late[i].Undoer != nil && !late[i].Idle(f.idle) {
			l.besides(f.obj, late[i].Undo(f.pod, f.node))
		}
	}
}

// ground ends the flight of a pod, if it has one: it is gone, or somebody else has bound it.
func (l *loop) ground(item *pending) {
	if item.flight != nil {
		l.land(item.flight)
	}
}

// takeBack takes the place from a pod that has not been bound, and reports
// whether it has to be put aside: it may be bound all the same, or gone, as the
// caches say sooner or later.
func (l *loop) takeBack(f *flight) bool {
	l.land(f)
	if p := f.pod; l.snapshot.Pod(p.Obj.UID) == p && p.Assumed {
		p.Assumed = false
		l.takeOff(p)
	}
	if l.queue.get(f.obj.UID) != f.item {
		return false // gone, or bound after all
	}
	if l.snapshot.Pod(f.obj.UID) != nil { // the answer was lost, not the binding
		l.queue.remove(f.item)
		return false
	}
	f.item.pod, f.item.flight = l.snapshot.NewPod(f.pod.Obj), nil
	l.queue.name(f.item)
	if f.item.together {
		l.broke(f)
	}
	return true
}

// errPreempted is the end of a flight that another pod needed the place of.
var errPreempted = errors.New("preempted by DefaultPreemption")

// unbind takes the place from a victim whose binding has not been sent, and reports whether it could. Such a pod need not be
// deleted: it looks for another place.
func (l *loop) unbind(by *beneficiary, v *snapshot.Pod) bool {
	item := l.queue.get(v.Obj.UID)
	if item == nil || item.flight == nil || item.flight.pod != v || item.flight.sent {
		return false
	}
	f := item.flight
	if l.takeBack(f) {
		l.failed(item, errPreempted, f.started)
	}
	by.tell(f.obj, f.node.Name, " (in kube-scheduler memory).")
	return true
}

// reject ends the flight of a pod that a plugin refuses after all.
func (l *loop) reject(f *flight, why *plugins.Reason) {
	if !l.takeBack(f) {
		return
	}
	u := &unfit{nodes: 1, refusals: []refusal{{f.node, why}}, plugins: 1 << why.Plugin}
	l.queue.refuse(f.item, u.plugins, time.Now())
	l.state(f.item, corev1.PodReasonUnschedulable, u.message())
	l.metrics.attempt(f.item.by, "unschedulable", time.Since(f.started))
}

// fail ends a flight that failed for no fault of the pod's (B3).
func (l *loop) fail(f *flight, err error) {
	if !l.takeBack(f) {
		return
	}
	l.log.Error("bind pod", "pod", nameOf(f.obj), "err", err)
	l.failed(f.item, err, f.started)
}
