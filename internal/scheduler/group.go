package scheduler

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/scheduling"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/scheduler/plugins"
	"github.com/kemudi/kemudi/internal/scheduler/snapshot"
)

// groups is what is known of groups of pods. A loop has none (nil) where they are not
// served, and asks no more than that then.
type groups struct {
	api   client.Client[*schedulingv1beta1.PodGroup]
	byKey map[string]*group
	dirty map[*group]struct{} // to be settled in this turn
}

// group is pods that name a group, which may not exist.
type group struct {
	key     string
	obj     *schedulingv1beta1.PodGroup // nil: there is none
	members map[types.UID]*corev1.Pod   // that are not over
	stated  map[string]metav1.Condition // what its status says, or will, by type
	item    *pending                    // stands in the queue for those that wait together

	heard map[types.UID]hearing // by pod: what extenders have said in the attempt that is under way

	refused []*snapshot.Pod // the forms of pods that had no place at the last attempt
	changed bool            // a member came or asks for something else now
	broke   bool            // a member has lost the place that it had
}

func newGroups(t client.Transport) *groups {
	return &groups{api: client.For(t, scheduling.PodGroups), byKey: map[string]*group{}, dirty: map[*group]struct{}{}}
}

// get returns what is known of a group, from now on something.
func (gs *groups) get(key string) *group {
	g := gs.byKey[key]
	if g == nil {
		g = &group{key: key, members: map[types.UID]*corev1.Pod{}, stated: map[string]metav1.Condition{}}
		g.item = &pending{group: g, index: -1}
		gs.byKey[key] = g
	}
	gs.dirty[g] = struct{}{}
	return g
}

// of returns the group of a pod as it is known; nil: it is in none.
func (gs *groups) of(p *corev1.Pod) *group {
	if gs == nil || p.Spec.SchedulingGroup == nil {
		return nil
	}
	return gs.byKey[cache.Key(p.Namespace, core.PodGroupName(p))]
}

// touch has the group of a pod looked at, if it has one.
func (gs *groups) touch(p *corev1.Pod) {
	if g := gs.of(p); g != nil {
		g.changed = true
		gs.dirty[g] = struct{}{}
	}
}

// see takes in a change of a pod.
func (gs *groups) see(p *corev1.Pod, gone bool) {
	name := core.PodGroupName(p)
	if name == "" {
		return
	}
	g := gs.get(cache.Key(p.Namespace, name))
	if gone || core.PodTerminal(p) || p.DeletionTimestamp != nil && p.Spec.NodeName == "" {
		delete(g.members, p.UID)
		return
	}
	was := g.members[p.UID]
	g.members[p.UID] = p
	g.changed = g.changed || was == nil || was.Generation != p.Generation || !labels.Equals(was.Labels, p.Labels)
}

// takeGroup takes in a change of a group.
func (l *loop) takeGroup(obj resource.Object, gone bool) {
	g := l.groups.get(cache.Key(obj.GetNamespace(), obj.GetName()))
	now := obj.(*schedulingv1beta1.PodGroup)
	g.changed = g.changed || g.obj == nil || g.obj.UID != now.UID || scheduling.MinCount(now) < scheduling.MinCount(g.obj)
	if g.obj = now; gone {
		g.obj = nil
	}
	l.budgets.edition++ // its pods are of another importance now than remembered
	clear(g.stated)
	for _, c := range now.Status.Conditions {
		g.stated[c.Type] = c
	}
}

// settleGroups has groups tried that can be, after what this turn has brought.
func (l *loop) settleGroups() {
	if l.groups == nil || len(l.groups.dirty) == 0 {
		return
	}
	now := time.Now()
	for g := range l.groups.dirty {
		l.settleGroup(g, now)
	}
	clear(l.groups.dirty)
}

// settleGroup puts a group where it belongs: its pods wait until there are enough of them,
// and then stand in the queue as one. Pods that need not go together go alone.
func (l *loop) settleGroup(g *group, now time.Time) {
	waiting, placed := l.standing(g)
	item := g.item
	switch {
	case len(g.members) == 0 && g.obj == nil:
		delete(l.groups.byKey, g.key)
		l.queue.retire(item)
	case g.obj == nil || len(g.members) < scheduling.MinCount(g.obj) || len(waiting) == 0:
		l.queue.retire(item)
	case !g.together(placed):
		l.queue.retire(item)
		for _, p := range waiting {
			l.queue.part(p, now)
		}
	case item.place == "":
		item.pod = &snapshot.Pod{Obj: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: g.obj.Namespace, Name: g.obj.Name}}, Priority: priorityOf(g.obj)}
		item.by, item.since = waiting[0].by, now
		if g.broke {
			item.erred = true
			l.queue.fail(item, backoff, now)
		} else {
			l.queue.put(item, active)
		}
	case g.changed:
		l.queue.wake(item, now)
	}
	g.changed, g.broke = false, false
}

// together says that pods of the group that have no place yet depend on one another,
// when so many of it have one.
func (g *group) together(placed int) bool {
	return scheduling.TopologyKey(g.obj) != "" || g.obj.Spec.SchedulingPolicy.Gang != nil && placed < scheduling.MinCount(g.obj)
}

func priorityOf(g *schedulingv1beta1.PodGroup) int32 {
	if g.Spec.Priority == nil {
		return 0
	}
	return *g.Spec.Priority
}

// disruptedWhole says that no pod of the group may be disrupted without the others.
func (g *group) disruptedWhole() bool {
	return g.obj != nil && g.obj.Spec.DisruptionMode != nil && g.obj.Spec.DisruptionMode.All != nil
}

// standing is the pods of a group that wait for each other, in the order in which they
// are to be placed, and how many have a place.
func (l *loop) standing(g *group) (waiting []*pending, placed int) {
	for uid := range g.members {
		if item := l.queue.get(uid); item != nil && item.place == grouped {
			waiting = append(waiting, item)
		} else if p := l.snapshot.Pod(uid); p != nil && !p.Terminating {
			placed++
		}
	}
	slices.SortFunc(waiting, func(a, b *pending) int {
		return cmp.Or(cmp.Compare(b.pod.Priority, a.pod.Priority), a.since.Compare(b.since), cmp.Compare(a.pod.Obj.Name, b.pod.Obj.Name))
	})
	return waiting, placed
}

// helped reports whether an event can help a group that plugins refused: if it can help one
// of the pods that had no place.
func (g *group) helped(set *plugins.Set, refused uint32, snap *snapshot.Snapshot, e *plugins.Event) bool {
	return slices.ContainsFunc(g.refused, func(p *snapshot.Pod) bool {
		return set.Wakes(refused, &plugins.Cycle{Snapshot: snap, Pod: p}, e)
	})
}

// rouse has a pod tried again that waits, or the group that it waits with.
func (l *loop) rouse(item *pending) {
	if g := l.groups.of(item.pod.Obj); g != nil && item.together {
		item = g.item
	}
	l.queue.wake(item, time.Now())
}

// broke notes that a pod has lost the place that it had in its group. It is held for it, so
// that the others, which may be bound by now, have not started in vain.
func (l *loop) broke(f *flight) {
	g := l.groups.of(f.obj)
	if g == nil {
		return
	}
	l.snapshot.Nominate(f.item.pod, f.node.Name)
	g.broke = true
	l.groups.dirty[g] = struct{}{}
}

// rank is how important a pod is to those who look for victims: as important as its group.
func (gs *groups) rank(p *snapshot.Pod) int32 {
	if gs == nil {
		return p.Priority
	}
	if g := gs.of(p.Obj); g != nil && g.obj != nil {
		return priorityOf(g.obj)
	}
	return p.Priority
}

// whole adds to victims those that must not be left without them.
func (l *loop) whole(victims []*snapshot.Pod) []*snapshot.Pod {
	if l.groups == nil {
		return victims
	}
	all := map[*snapshot.Pod]bool{}
	for _, v := range victims {
		all[v] = true
	}
	for _, v := range victims {
		g := l.groups.of(v.Obj)
		if g == nil || !g.disruptedWhole() {
			continue
		}
		for uid := range g.members {
			if p := l.snapshot.Pod(uid); p != nil && !all[p] {
				all[p] = true
				victims = append(victims, p)
			}
		}
	}
	return victims
}

// disrupted says so of groups that are evicted as a whole.
func (l *loop) disrupted(by *beneficiary, victims []*snapshot.Pod) {
	told := map[*group]bool{}
	for _, v := range victims {
		if g := l.groups.of(v.Obj); g != nil && !told[g] && g.disruptedWhole() {
			told[g] = true
			l.stateGroup(g, metav1.Condition{
				Type: schedulingv1beta1.DisruptionTarget, Status: metav1.ConditionTrue, Reason: schedulingv1beta1.PodGroupReasonPreemptionByScheduler, Message: by.why(),
			})
		}
	}
}

// callsOf is whom calls about a group are about.
func callsOf(g *group) types.UID { return types.UID("podgroup/" + g.key) }

// stateGroup writes a condition of a group. That it was placed once stays true.
func (l *loop) stateGroup(g *group, c metav1.Condition) {
	if g.obj == nil {
		return
	}
	was, ok := g.stated[c.Type]
	if ok && was.Status == metav1.ConditionTrue && c.Type == schedulingv1beta1.PodGroupInitiallyScheduled {
		return
	}
	list := slices.Collect(maps.Values(g.stated))
	c.ObservedGeneration = g.obj.Generation
	if !meta.SetStatusCondition(&list, c) {
		return
	}
	c = *meta.FindStatusCondition(list, c.Type)
	g.stated[c.Type] = c
	obj := g.obj
	l.calls.add(&call{
		pod: callsOf(g), kind: evictCall, // each of its conditions counts
		do: func(ctx context.Context) error {
			data, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": obj.UID}, "status": map[string]any{"conditions": []metav1.Condition{c}}})
			if err != nil {
				return fmt.Errorf("encode status patch: %w", err)
			}
			_, err = l.groups.api.Patch(ctx, obj.Namespace, obj.Name, "status", client.Patch{Type: types.StrategicMergePatchType, Data: data})
			return err
		},
		then: func(err error) {
			if err != nil && !apierrors.IsNotFound(err) {
				l.log.Warn("write condition of pod group", "group", g.key, "err", err)
				delete(g.stated, c.Type) // so that it is written the next time
			}
		},
	})
}
