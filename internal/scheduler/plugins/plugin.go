package plugins

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/scheduler/snapshot"
)

// MaxScore is the best score that a plugin gives; 0 is the worst.
const MaxScore = 100

// Plugin is one concern of scheduling. It implements at least one of the
// interfaces below. Its name is upstream's.
type Plugin interface {
	Name() string
}

// PreEnqueuer keeps a pod out of the queue for a reason that no node has anything to do with.
// Such a pod is not tried, nor is anything said about it, until there is a change of the pod or
// of what the key names.
type PreEnqueuer interface {
	PreEnqueue(s *snapshot.Snapshot, p *snapshot.Pod) (key string, wait bool)
}

// PreFilterer looks at a pod before its nodes are filtered.
type PreFilterer interface {
	PreFilter(c *Cycle) PreFilterResult
}

// Filterer refuses nodes. A nil reason means that the pod may go there. It may be
// called although PreFilter said Skip, when the snapshot was changed after that.
type Filterer interface {
	Filter(c *Cycle, n *snapshot.Node) *Reason
}

// PostFilterer does something for a pod that fits nowhere, in the turn in which that was found.
// The note is for people; empty: there is nothing to say.
type PostFilterer interface {
	PostFilter(c *Cycle) (note string, w Work)
}

// Scorer prefers nodes. Score sets scores[i], which are 0, to at most MaxScore
// for nodes[i], at least two nodes that passed all filters; false means that the plugin has no preference.
type Scorer interface {
	Score(c *Cycle, nodes []*snapshot.Node, scores []int64) bool
}

// Reserver keeps something of the node that a pod got, so that no other pod is
// promised the same. Reserve is called in the turn in which the node was chosen:
// what the plugin noted about the pod is still true; what it needs later it must keep by
// pod. A reason refuses the pod. Unreserve gives all back if the pod is not bound
// in the end; it is called for every plugin that is not idle, Reserve or not, the last one first.
type Reserver interface {
	Reserve(c *Cycle, n *snapshot.Node) *Reason
	Unreserve(p *snapshot.Pod, n *snapshot.Node)
}

// Permitter refuses a pod that has its place, or holds it back there.
type Permitter interface {
	Permit(c *Cycle, n *snapshot.Node) (Wait, *Reason)
}

// PreBinder does through the API what must be done before a pod is bound.
type PreBinder interface {
	PreBind(c *Cycle, n *snapshot.Node) Work
}

// Undoer takes back what PreBind has written, when a pod is not bound in the end. Undo is
// called after all Unreserve; its work begins when that of PreBind has ended, and its Wait does not count.
type Undoer interface {
	Undo(p *snapshot.Pod, n *snapshot.Node) Work
}

// PostBinder is told of a pod that is bound.
type PostBinder interface {
	PostBind(p *snapshot.Pod, n *snapshot.Node)
}

// Wait is what holds back a pod that has its place. The zero Wait is none.
type Wait struct {
	// Over is asked after each event that the plugin's Wakers name; an error
	// takes the place from the pod.
	Over func() (bool, error)
	// For is how long the pod waits at most; the place is taken from it then.
	For time.Duration
	// Late is why, then; nil: that it is too late.
	Late error
	// Note is for people, if the pod has to wait; nil: there is nothing to say.
	Note *Note
	// Drivers are those of the devices that are waited for; their waits are measured.
	Drivers []string
}

// Note is an event about a pod.
type Note struct{ Reason, Message string }

// Work is what is to be done before a binding. The zero Work is nothing.
type Work struct {
	// Do runs beside the scheduler: it must not touch the snapshot or the plugin.
	Do func(ctx context.Context, t client.Transport) error
	// Done is called in the scheduler's turn when Do has returned, whatever has become of the pod. It
	// reports whether devices came free. nil: nobody has to know.
	Done func(err error) (freed bool)
	// Wait begins when Do has returned; whether it is over is asked at once.
	Wait Wait
}

// Waker names the events after which a pod that the plugin refused may be
// accepted, and after which a pod that it holds back may go on.
type Waker interface {
	Wakers() Events
}

// Hinter looks closer at an event that its Wakers name. c is about the refused
// pod; its PreFilter has not been called.
type Hinter interface {
	Hint(c *Cycle, e *Event) bool
}

// Sharer is a plugin that tells pods apart by their [snapshot.Shape] alone: what its Filter
// and its Hint say of one pod is true of all pods of the shape as long as the snapshot has the same edition.
type Sharer interface {
	// Shared says what they and its Score look at besides.
	Shared() Scope
}

// Scope is what the answers of a plugin depend on besides the shape of the pod.
type Scope struct {
	// Filter, Score: on the node alone, as long as it has the same edition. Such a Score may be asked
	// about few nodes, or one.
	Filter, Score bool
	// Pod: on the pod itself, as it is told, so that Filter and Hint are shared by no two.
	Pod bool
}

// Cycle is what plugins see of one attempt to schedule one pod. From Reserve on
// it may be kept until the pod is bound or Unreserve is called.
type Cycle struct {
	Snapshot *snapshot.Snapshot
	Pod      *snapshot.Pod
}

// PreFilterResult is what PreFilter found. The zero value means that every node is to
// be filtered.
type PreFilterResult struct {
	Skip   bool     // the plugin's Filter passes every node as things are: it need not be called
	Nodes  []string // if not nil: no other node can pass
	Reject *Reason  // no node can pass
	// Idle: the pod is none of the plugin's business once it has a node, so that none
	// of [Late] is called for it.
	Idle bool
}

// Reason says why a pod cannot go to a node. Plugins make theirs once, since
// thousands of nodes may have the same.
type Reason struct {
	Texts []string // one or several; each counts its nodes in the message
	// Final: nothing would change if all other pods left the node.
	Final bool
	// Plugin is the index in [Set.All] of the plugin that refused.
	Plugin int
	// Err: no node was refused, the attempt has failed.
	Err error
}

// passing and lasting make reasons of a plugin: the one may pass when other pods
// leave the node, the other is final.
func passing(plugin int, texts ...string) *Reason { return &Reason{Texts: texts, Plugin: plugin} }

func lasting(plugin int, texts ...string) *Reason {
	return &Reason{Texts: texts, Plugin: plugin, Final: true}
}

// Events is a set of kinds of events.
type Events uint16

// What can happen that matters to pods that could not be scheduled.
const (
	NodeAdded Events = 1 << iota
	NodeAllocatable
	NodeLabels
	NodeTaints
	NodeFeatures // that it declares
	NodeRemoved
	PodAdded     // a pod got a node, or its labels changed there
	PodRemoved   // a pod left its node, began to leave or needs less
	ClaimChanged // a volume claim, a volume or a storage class
	VolumeDetached
	ResourceClaimChanged
	DevicesChanged // or their taints
	DeviceClassChanged
	Leftover // nothing: it was long ago
)

var eventNames = map[Events]string{
	NodeAdded: "NodeAdd", NodeAllocatable: "NodeUpdateNodeAllocatable", NodeLabels: "NodeUpdateNodeLabel", NodeTaints: "NodeUpdateNodeTaint",
	NodeFeatures: "NodeUpdateNodeDeclaredFeature", NodeRemoved: "NodeDelete", PodAdded: "AssignedPodAdd", PodRemoved: "AssignedPodDelete",
	ClaimChanged: "PersistentVolumeClaimUpdate", VolumeDetached: "storage.k8s.io/VolumeAttachmentDelete", ResourceClaimChanged: "resource.k8s.io/ResourceClaimUpdate",
	DevicesChanged: "resource.k8s.io/ResourceSliceUpdate", DeviceClassChanged: "resource.k8s.io/DeviceClassUpdate", Leftover: "UnschedulableTimeout",
}

// String is the event's name in metrics.
func (e Events) String() string { return eventNames[e] }

// Event is one thing that happened, after the snapshot has taken it in.
type Event struct {
	Kind Events         // exactly one
	Node *snapshot.Node // where; nil for claims, and for a node that is gone
	Pod  *snapshot.Pod  // which pod came or went; it may be on no node any more

	Claim *resourcev1.ResourceClaim // to devices, which has changed; nil: it is not one that has
	Freed bool                      // devices came free by that
}

// mightPass is the hint of a Filter that looks at nothing but the node and the pods there: the event helps if the pod may go
// there now, or could if those made room that are less important. Those that leave already wake it when they have left.
func mightPass(c *Cycle, e *Event, f Filterer) bool {
	p, n := c.Pod, e.Node
	if n == nil || n.Obj == nil {
		return n == nil
	}
	why, policy := f.Filter(c, n), p.Obj.Spec.PreemptionPolicy
	if why == nil || why.Final || policy != nil && *policy == corev1.PreemptNever {
		return why == nil
	}
	var less []*snapshot.Pod
	for _, other := range n.Pods {
		// How important pods of a group are is not known here.
		if (other.Priority < p.Priority || p.Obj.Spec.SchedulingGroup != nil) && !other.Terminating && !other.Victim {
			less = append(less, other)
		}
	}
	if len(less) == 0 {
		return false
	}
	c.Snapshot.WhatIf(n, func() {
		for _, other := range less {
			c.Snapshot.Lift(other)
		}
		why = f.Filter(c, n)
		for _, other := range less {
			c.Snapshot.Lower(other, n)
		}
	})
	return why == nil
}

// passes is the hint of a Filter that looks at nothing but the node: the event
// helps if the pod may go there now.
func passes(c *Cycle, e *Event, f Filterer) bool {
	return e.Node == nil || e.Node.Obj != nil && f.Filter(c, e.Node) == nil
}
