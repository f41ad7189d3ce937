package scheduler

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/dra"
	"github.com/kemudi/kemudi/internal/api/policy"
	"github.com/kemudi/kemudi/internal/api/scheduling"
	"github.com/kemudi/kemudi/internal/api/storage"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/scheduler/plugins"
	"github.com/kemudi/kemudi/internal/scheduler/snapshot"
)

// follower takes in the changes of one resource.
type follower struct {
	*cache.Follower
	def  *resource.Def
	take func(obj resource.Object, gone bool)
}

// followers are in the order in which a first state is taken in: pods last,
// since the others give them meaning.
type followers struct {
	namespaces, services, budgets, classes, drivers, capacities, csiNodes, attachments, volumes, claims follower
	deviceClasses, deviceRules, deviceSlices, deviceClaims                                              follower
	nodes, pods                                                                                         follower

	groups *follower // nil: there are no groups of pods
}

func (f *followers) all() [16]*follower {
	return [16]*follower{
		&f.namespaces, &f.services, &f.budgets, &f.classes, &f.drivers, &f.capacities, &f.csiNodes, &f.attachments, &f.volumes, &f.claims,
		&f.deviceClasses, &f.deviceRules, &f.deviceSlices, &f.deviceClaims, &f.nodes, &f.pods,
	}
}

func (f *followers) close() {
	for _, x := range f.all() {
		x.Close()
	}
	if f.groups != nil {
		f.groups.Close()
	}
}

// groupsReady is ready when groups of pods have changed.
func (f *followers) groupsReady() <-chan struct{} {
	if f.groups == nil {
		return nil
	}
	return f.groups.Ready()
}

// follows is what a scheduler follows, and what becomes of it.
func (l *loop) follows() *followers {
	return &followers{
		namespaces:    follower{def: core.Namespaces.Def, take: l.takeNamespace},
		services:      follower{def: core.Services.Def, take: l.takeService},
		budgets:       follower{def: policy.PodDisruptionBudgets.Def, take: l.takeBudget},
		classes:       follower{def: storage.StorageClasses.Def, take: l.takeStorageClass},
		drivers:       follower{def: storage.CSIDrivers.Def, take: l.takeDriver},
		capacities:    follower{def: storage.CSIStorageCapacities.Def, take: l.takeCapacity},
		csiNodes:      follower{def: storage.CSINodes.Def, take: l.takeCSINode},
		attachments:   follower{def: storage.VolumeAttachments.Def, take: l.takeAttachment},
		volumes:       follower{def: core.PersistentVolumes.Def, take: l.takeVolume},
		claims:        follower{def: core.PersistentVolumeClaims.Def, take: l.takeClaim},
		deviceClasses: follower{def: dra.DeviceClasses.Def, take: l.takeDeviceClass},
		deviceRules:   follower{def: dra.DeviceTaintRules.Def, take: l.takeDeviceRule},
		deviceSlices:  follower{def: dra.ResourceSlices.Def, take: l.takeSlice},
		deviceClaims:  follower{def: dra.ResourceClaims.Def, take: l.takeResourceClaim},
		nodes:         follower{def: core.Nodes.Def, take: l.takeNode},
		pods:          follower{def: core.Pods.Def, take: l.takePod},
	}
}

// follow begins to follow everything.
func (l *loop) follow(t client.Transport) {
	l.followers = l.follows()
	for _, f := range l.followers.all() {
		f.Follower = t.Cache(f.def, "").Follow(cache.FollowOptions{})
	}
	if l.groups != nil {
		l.followers.groups = &follower{Follower: t.Cache(scheduling.PodGroups.Def, "").Follow(cache.FollowOptions{}), take: l.takeGroup}
	}
}

// takeIn takes in what has changed.
func (l *loop) takeIn() {
	if f := l.followers.groups; f != nil {
		f.takeIn()
	}
	for _, f := range l.followers.all() {
		f.takeIn()
	}
}

func (f *follower) takeIn() {
	for _, d := range f.Next() {
		f.take(d.Last().Object, d.Now == nil)
	}
}

func (l *loop) takeNamespace(obj resource.Object, gone bool) {
	set := obj.GetLabels()
	if set == nil {
		set = labels.Set{}
	}
	if gone {
		set = nil
	}
	if l.snapshot.SetNamespace(obj.GetName(), set) {
		l.wake(plugins.Event{Kind: plugins.NodeLabels}) // what is near what may have changed
	}
}

func (l *loop) takeService(obj resource.Object, gone bool) {
	s := obj.(*corev1.Service)
	selector := s.Spec.Selector
	if gone {
		selector = nil
	}
	l.snapshot.SetService(s.Namespace, s.Name, selector)
}

func (l *loop) takeBudget(obj resource.Object, gone bool) {
	b := obj.(*policyv1.PodDisruptionBudget)
	if gone {
		l.budgets.remove(b.Namespace, b.Name)
	} else {
		l.budgets.set(b)
	}
}

func (l *loop) takeStorageClass(obj resource.Object, gone bool) {
	if gone {
		l.snapshot.RemoveStorageClass(obj.GetName())
	} else {
		l.snapshot.SetStorageClass(obj.(*storagev1.StorageClass))
	}
	l.wake(plugins.Event{Kind: plugins.ClaimChanged})
}

func (l *loop) takeDriver(obj resource.Object, gone bool) {
	if gone {
		l.snapshot.RemoveDriver(obj.GetName())
	} else {
		l.snapshot.SetDriver(obj.(*storagev1.CSIDriver))
	}
	l.wake(plugins.Event{Kind: plugins.ClaimChanged})
}

func (l *loop) takeCapacity(obj resource.Object, gone bool) {
	c := obj.(*storagev1.CSIStorageCapacity)
	if gone {
		l.snapshot.RemoveCapacity(c)
		return
	}
	l.snapshot.SetCapacity(c)
	l.wake(plugins.Event{Kind: plugins.ClaimChanged})
}

func (l *loop) takeCSINode(obj resource.Object, gone bool) {
	if gone {
		l.snapshot.RemoveCSINode(obj.GetName())
	} else {
		l.snapshot.SetCSINode(obj.(*storagev1.CSINode))
	}
	l.wake(plugins.Event{Kind: plugins.ClaimChanged})
}

func (l *loop) takeAttachment(obj resource.Object, gone bool) {
	a := obj.(*storagev1.VolumeAttachment)
	if gone {
		l.snapshot.RemoveAttachment(a)
		l.wake(plugins.Event{Kind: plugins.VolumeDetached})
		return
	}
	l.snapshot.SetAttachment(a)
}

func (l *loop) takeVolume(obj resource.Object, gone bool) {
	if gone {
		l.snapshot.RemoveVolume(obj.GetName())
		return
	}
	l.snapshot.SetVolume(obj.(*corev1.PersistentVolume))
	l.wake(plugins.Event{Kind: plugins.ClaimChanged})
}

func (l *loop) takeClaim(obj resource.Object, gone bool) {
	if gone {
		l.snapshot.RemoveClaim(obj.GetNamespace(), obj.GetName())
		return
	}
	l.snapshot.SetClaim(obj.(*corev1.PersistentVolumeClaim))
	l.wake(plugins.Event{Kind: plugins.ClaimChanged})
}

func (l *loop) takeNode(obj resource.Object, gone bool) {
	if gone {
		l.nodeGone(obj.GetName())
		return
	}
	n, changed := l.snapshot.SetNode(obj.(*corev1.Node))
	if changed&snapshot.NodeAdded != 0 {
		l.nominateOn(n.Name)
	}
	for change, kind := range nodeEvents {
		if changed&change != 0 {
			l.wake(plugins.Event{Kind: kind, Node: n})
		}
	}
	if changed&snapshot.AllocatableChanged != 0 {
		l.rouseAll(n.Nominated) // it may have become too small for them
	}
}

// nodeGone forgets a node. Pods that were promised it look elsewhere.
func (l *loop) nodeGone(name string) {
	var promised []*snapshot.Pod
	if n := l.snapshot.Node(name); n != nil {
		promised = slices.Clone(n.Nominated)
	}
	l.snapshot.RemoveNode(name)
	l.wake(plugins.Event{Kind: plugins.NodeRemoved})
	l.rouseAll(promised)
}

var nodeEvents = map[snapshot.Change]plugins.Events{
	snapshot.NodeAdded:          plugins.NodeAdded,
	snapshot.AllocatableChanged: plugins.NodeAllocatable,
	snapshot.LabelsChanged:      plugins.NodeLabels,
	snapshot.TaintsChanged:      plugins.NodeTaints,
	snapshot.FeaturesChanged:    plugins.NodeFeatures,
}

// nominateOn gives pods their place on a node that was not known when they
// were promised it.
func (l *loop) nominateOn(node string) {
	for item := range l.queue.named[node] {
		if item.place != flying && item.pod.Nominated() == nil {
			l.snapshot.Nominate(item.pod, node)
		}
	}
}

func (l *loop) takePod(obj resource.Object, gone bool) {
	p := obj.(*corev1.Pod)
	if l.groups != nil {
		l.groups.see(p, gone)
	}
	switch {
	case gone || core.PodTerminal(p):
		l.podGone(p)
	case p.Spec.NodeName != "":
		l.podOnNode(p)
	case l.profiles[p.Spec.SchedulerName] == nil:
	case p.DeletionTimestamp != nil:
		l.podGone(p)
	default:
		l.podPending(p)
	}
}

// podGone forgets a pod that takes no place any more.
func (l *loop) podGone(obj *corev1.Pod) {
	if item := l.queue.get(obj.UID); item != nil {
		n := item.pod.Nominated()
		l.snapshot.Nominate(item.pod, "")
		l.ground(item)
		l.queue.remove(item)
		if n != nil {
			l.wake(plugins.Event{Kind: plugins.PodRemoved, Node: n, Pod: item.pod})
		}
	}
	if p := l.snapshot.Pod(obj.UID); p != nil {
		l.takeOff(p)
	}
}

// takeOff takes a pod off its node.
func (l *loop) takeOff(p *snapshot.Pod) {
	n := p.Node()
	l.snapshot.Remove(p)
	l.wake(plugins.Event{Kind: plugins.PodRemoved, Node: n, Pod: p})
	l.rouseNominated(n)
}

// rouseNominated has those tried for whom others have left a node, also where that does not help: somebody was faster, and
// there may be room to be made elsewhere.
func (l *loop) rouseNominated(n *snapshot.Node) {
	if len(n.Nominated) == 0 || slices.ContainsFunc(n.Pods, makesRoom) {
		return
	}
	l.rouseAll(n.Nominated)
}

// rouseAll has pods tried that wait.
func (l *loop) rouseAll(pods []*snapshot.Pod) {
	for _, p := range pods {
		if item := l.queue.get(p.Obj.UID); item != nil {
			l.rouse(item)
		}
	}
}

func (l *loop) podOnNode(obj *corev1.Pod) {
	p := l.snapshot.Pod(obj.UID)
	if p != nil && p.Node().Name != obj.Spec.NodeName { // somebody else bound it elsewhere
		l.takeOff(p)
		p = nil
	}
	if p == nil {
		if item := l.queue.get(obj.UID); item != nil {
			l.renounce(item.pod)
			l.ground(item)
			l.queue.remove(item)
		}
		p = l.snapshot.NewPod(obj)
		l.snapshot.Add(p, obj.Spec.NodeName)
		l.wake(plugins.Event{Kind: plugins.PodAdded, Node: p.Node(), Pod: p})
		return
	}
	was := *p
	p.Assumed = false
	l.snapshot.Update(p, obj)
	if p.Terminating && p.Victim {
		p.Victim = false // its status says so now
	}
	relabelled := !labels.Equals(was.Obj.Labels, obj.Labels)
	if relabelled {
		l.wake(plugins.Event{Kind: plugins.PodAdded, Node: p.Node(), Pod: p})
	}
	if relabelled || p.Terminating != was.Terminating || less(p.Requests, was.Requests) {
		l.wake(plugins.Event{Kind: plugins.PodRemoved, Node: p.Node(), Pod: &was})
	}
}

// less reports whether something is asked for less than before.
func less(now, before []snapshot.Amount) bool {
	for _, b := range before {
		left := b.Value
		for _, n := range now {
			if n.Resource == b.Resource {
				left -= n.Value
			}
		}
		if left > 0 {
			return true
		}
	}
	return false
}

func (l *loop) podPending(obj *corev1.Pod) {
	if p := l.snapshot.Pod(obj.UID); p != nil { // we are binding it
		l.snapshot.Update(p, obj)
		return
	}
	now := time.Now()
	item := l.queue.get(obj.UID)
	if item == nil {
		item = l.queue.add(l.snapshot.NewPod(obj), l.profiles[obj.Spec.SchedulerName], now)
		item.stated = statedIn(obj)
		l.snapshot.Nominate(item.pod, obj.Status.NominatedNodeName)
		l.metrics.came("UnscheduledPodAdd", item, item.place)
		return
	}
	was := item.pod.Obj
	if nominated := obj.Status.NominatedNodeName; nominated != was.Status.NominatedNodeName && nominated != item.stated.nominated {
		item.stated.nominated = nominated
		l.renounce(item.pod)
		l.snapshot.Nominate(item.pod, nominated)
	}
	if sameClaims(obj, was) && obj.Generation == was.Generation && labels.Equals(was.Labels, obj.Labels) && len(obj.Spec.SchedulingGates) == len(was.Spec.SchedulingGates) {
		item.pod.Obj = obj
		l.queue.name(item)
		return
	}
	n := item.pod.Nominated()
	l.snapshot.Nominate(item.pod, "")
	l.queue.replace(item, l.snapshot.NewPod(obj), now)
	if n != nil {
		l.snapshot.Nominate(item.pod, n.Name)
	}
	l.metrics.came("UnscheduledPodUpdate", item, item.place)
}

// sameClaims reports whether the claims that were made for a pod are the same.
func sameClaims(a, b *corev1.Pod) bool {
	return len(a.Spec.ResourceClaims) == 0 || equality.Semantic.DeepEqual(a.Status.ResourceClaimStatuses, b.Status.ResourceClaimStatuses)
}
