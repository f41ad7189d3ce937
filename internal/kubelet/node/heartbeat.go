package node

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/obs"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/task"
)

// How often the node tells about itself.
const (
	LeaseInterval = 10 * time.Second // renews its lease, and looks whether its state has changed
	LeaseDuration = 40 * time.Second // after which it is lost
	unreadyCheck  = 250 * time.Millisecond
	reportTries   = 5 // of one report: others write to a node as well, most of all when it is new
)

// ReportInterval is how often a node writes its status although nothing has changed, unless it is told; after a
// change it is up to half as long earlier or later.
const ReportInterval = 5 * time.Minute

// apiDeadline bounds a request to the API.
const apiDeadline = 30 * time.Second

// Runtime is what the container runtime has said of itself.
type Runtime struct {
	Version      string // its name and version, as in the API
	StrictGroups bool   // it gives a container no groups but those that its pod names, if told to
}

// Run registers the node, then keeps its lease and its status until ctx ends.
func (n *Node) Run(ctx context.Context, runtime Runtime) error {
	h := &heartbeat{n: n, runtime: runtime}
	retry := task.Backoff{Initial: 100 * time.Millisecond, Max: 5 * time.Second, Jitter: 0.2}
	for {
		err := h.register(ctx)
		if err == nil {
			break
		}
		h.tell(ctx, &h.rows.register, "register node", err)
		if err := task.Sleep(ctx, retry.Next()); err != nil {
			return err
		}
	}
	n.o.Events.Event(h.node, v1.EventTypeNormal, "Starting", "Starting kubelet.")
	nextLease := time.Now()
	for {
		if !time.Now().Before(nextLease) {
			h.tell(ctx, &h.rows.renew, "renew lease", h.renew(ctx))
			nextLease = nextLease.Add(LeaseInterval)
		}
		h.tell(ctx, &h.rows.label, "label node", h.label(ctx))
		h.tell(ctx, &h.rows.report, "report node status", h.report(ctx))
		h.tell(ctx, &h.csi.row, "make CSINode", h.haveCSINode(ctx))
		wait := time.Until(nextLease)
		if !h.ready {
			wait = min(wait, unreadyCheck)
		}
		if h.n.o.StatusPeriod < ReportInterval && !h.reported.IsZero() { // else the lease's time is near enough
			wait = min(wait, time.Until(h.reported.Add(h.again)))
		}
		select {
		case <-time.After(max(wait, 0)):
		case <-h.n.changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// tell logs what became of something that is done again and again. Without the API all of it
// fails, for hours.
func (h *heartbeat) tell(ctx context.Context, row *obs.Row, what string, err error) {
	switch {
	case err == nil:
		row.Over()
	case ctx.Err() == nil:
		h.n.o.Log.Log(ctx, row.Failed(), what, "node", h.n.o.Name, "err", err)
	}
}

// heartbeat is the state of its goroutine.
type heartbeat struct {
	n               *Node
	runtime         Runtime
	node            *v1.Node // as last seen
	lease           leaseState
	csi             csiState
	reported        time.Time
	again           time.Duration                 // when it is reported again although nothing has changed
	unsaid          bool                          // the Node is new: it has said nothing before
	reportedTrouble string                        // the trouble reported then
	pressed         map[v1.NodeConditionType]bool // the pressure reported then
	pulled          int64                         // images pulled or removed until then
	ips             []string                      // the addresses reported then
	devices         devices                       // the devices reported then
	unschedulable   bool                          // what was told last of whether pods may come
	rows            struct{ register, renew, label, report obs.Row }

	// What the last look has shown.
	pressure map[v1.NodeConditionType]bool
	trouble  string // why the runtime cannot run pods; empty: it can
	ready    bool
	handlers []v1.NodeRuntimeHandler
}

// ownedBy says that the Node is the owner of what goes with it.
func ownedBy(node *v1.Node) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}}
}

// register makes the Node object, or takes it over as it is.
func (h *heartbeat) register(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, apiDeadline)
	defer cancel()
	node := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: h.n.o.Name, Labels: h.n.labels(), Annotations: h.n.annotations(nil)},
		Spec:       v1.NodeSpec{Taints: h.n.taints(), ProviderID: h.n.o.ProviderID, Unschedulable: h.n.o.Closed},
	}
	h.look(ctx)
	if h.n.o.ByHand {
		existing, err := h.n.nodes.Get(ctx, "", h.n.o.Name)
		if err != nil {
			return fmt.Errorf("get node: %w", err)
		}
		h.node = existing
		return nil
	}
	h.setStatus(ctx, &node.Status)
	created, err := h.n.nodes.Create(ctx, node)
	if apierrors.IsAlreadyExists(err) {
		return h.takeOver(ctx)
	}
	if err != nil {
		return fmt.Errorf("create node: %w", err)
	}
	h.node, h.unsaid = created, true
	return nil
}

// takeOver brings the labels and annotations of an existing Node up to date.
func (h *heartbeat) takeOver(ctx context.Context) error {
	node, err := h.n.nodes.Get(ctx, "", h.n.o.Name)
	if err != nil {
		return fmt.Errorf("get node: %w", err)
	}
	h.node = node
	labels := maps.Clone(node.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, h.n.labels())
	annotations := h.n.annotations(node.Annotations)
	if maps.Equal(labels, node.Labels) && maps.Equal(annotations, node.Annotations) {
		return nil
	}
	node = node.DeepCopy()
	node.Labels, node.Annotations = labels, annotations
	if h.node, err = h.n.nodes.Update(ctx, node); err != nil {
		return fmt.Errorf("update node: %w", err)
	}
	return nil
}

// label has the node say which system and processors it has, whatever others have made of these labels. A Node that people
// make has the labels that they give it.
func (h *heartbeat) label(ctx context.Context) error {
	node, ok := h.n.cache.Get("", h.n.o.Name)
	if !ok || h.n.o.ByHand || node.UID != h.node.UID || node.Labels[v1.LabelOSStable] == runtime.GOOS && node.Labels[v1.LabelArchStable] == runtime.GOARCH {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, apiDeadline)
	defer cancel()
	node = node.DeepCopy()
	metav1.SetMetaDataLabel(&node.ObjectMeta, v1.LabelOSStable, runtime.GOOS)
	metav1.SetMetaDataLabel(&node.ObjectMeta, v1.LabelArchStable, runtime.GOARCH)
	written, err := h.n.nodes.Update(ctx, node)
	if err != nil {
		return err
	}
	h.node = written
	return nil
}

// report writes the node's status if it has changed or has not been written for
// a while.
func (h *heartbeat) report(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, apiDeadline)
	defer cancel()
	if h.deleted() {
		h.reported = time.Time{}
		return h.register(ctx)
	}
	h.tellSchedulable()
	pulled, ips, devices := h.n.o.ImageChanges(), h.n.Addresses(), h.n.devices()
	changed := h.look(ctx) || h.reported.IsZero() || !slices.Equal(ips, h.ips) || h.newImages(ctx, pulled) || h.contradicted() || h.otherVolumes() ||
		!equality.Semantic.DeepEqual(devices.capacity, h.devices.capacity) || !equality.Semantic.DeepEqual(devices.allocatable, h.devices.allocatable)
	if !changed && time.Since(h.reported) < h.again {
		h.pulled = pulled
		return nil
	}
	if node, ok := h.n.cache.Get("", h.n.o.Name); ok && node.UID == h.node.UID {
		h.node = node
	}
	node, last, first := h.node.DeepCopy(), h.node.Status.NodeInfo.BootID, h.reported.IsZero()
	wasReady := !h.unsaid && core.NodeIsReady(h.node)
	h.setStatus(ctx, &node.Status)
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; slices.Contains(ourConditions, c.Type) {
			c.LastHeartbeatTime = metav1.Now().Rfc3339Copy()
		}
	}
	written, err := h.n.nodes.UpdateStatus(ctx, node)
	for try := 1; try < reportTries && apierrors.IsConflict(err); try++ { // somebody else was faster: once more on what is there now
		if written, err = h.n.nodes.Get(ctx, "", node.Name); err == nil {
			h.node = written
			node = written.DeepCopy()
			h.setStatus(ctx, &node.Status)
			written, err = h.n.nodes.UpdateStatus(ctx, node)
		}
	}
	if apierrors.IsNotFound(err) {
		return h.register(ctx) // somebody deleted it
	}
	if err != nil {
		return err
	}
	h.reportPressure(written, first)
	if h.ready != wasReady {
		reason := "NodeReady"
		if !h.ready {
			reason = "NodeNotReady"
		}
		h.n.o.Events.Event(written, v1.EventTypeNormal, reason, fmt.Sprintf("Node %s status is now: %s", written.Name, reason))
	}
	if boot := node.Status.NodeInfo.BootID; last != "" && boot != "" && last != boot {
		h.n.o.Events.Event(written, v1.EventTypeWarning, "Rebooted", fmt.Sprintf("Node %s has been rebooted, boot id: %s", written.Name, boot))
	}
	h.unsaid = false
	h.node, h.reported, h.pulled, h.reportedTrouble, h.pressed, h.ips, h.devices = written, time.Now(), pulled, h.trouble, h.pressure, ips, devices
	h.again = h.n.o.StatusPeriod
	if changed { // many nodes may have changed together, as when they were started: they need not write together ever after
		h.again += rand.N(h.n.o.StatusPeriod) - h.n.o.StatusPeriod/2
	}
	return nil
}

// tellSchedulable tells when somebody has said that no pods may come, or that they may again.
func (h *heartbeat) tellSchedulable() {
	node, ok := h.n.cache.Get("", h.n.o.Name)
	if !ok || node.Spec.Unschedulable == h.unschedulable {
		return
	}
	h.unschedulable = node.Spec.Unschedulable
	reason := "NodeSchedulable"
	if h.unschedulable {
		reason = "NodeNotSchedulable"
	}
	h.n.o.Events.Event(node, v1.EventTypeNormal, reason, fmt.Sprintf("Node %s status is now: %s", node.Name, reason))
}

// newImages reports whether the node has other images than its status says;
// pulled is how many changes there were. A pull is several of them.
func (h *heartbeat) newImages(ctx context.Context, pulled int64) bool {
	return pulled != h.pulled && !h.n.o.Simulated && !equality.Semantic.DeepEqual(h.n.images(ctx), h.node.Status.Images)
}

// contradicted reports whether others have changed the node's status since it was written, so that it must be written
// again. They do so to resources (extended ones that they add are to become allocatable, the node's own are to be as it
// measures them), and to conditions, while the node was taken for lost.
func (h *heartbeat) contradicted() bool {
	node, ok := h.n.cache.Get("", h.n.o.Name)
	if !ok || node.UID != h.node.UID || resource.Revision(node) <= resource.Revision(h.node) {
		return false
	}
	capacity := h.n.Capacity(node.Status.Capacity)
	return !equality.Semantic.DeepEqual(node.Status.Capacity, capacity) ||
		!equality.Semantic.DeepEqual(node.Status.Allocatable, h.n.Allocatable(capacity)) ||
		slices.ContainsFunc(ourConditions, func(t v1.NodeConditionType) bool {
			now, told := core.NodeCondition(&node.Status, t), core.NodeCondition(&h.node.Status, t)
			return told != nil && (now == nil || now.Status != told.Status)
		})
}

// deleted reports whether somebody has deleted the Node object.
func (h *heartbeat) deleted() bool {
	select {
	case <-h.n.cache.Synced():
	default:
		return false
	}
	node, ok := h.n.cache.Get("", h.n.o.Name)
	if ok {
		return node.UID != h.node.UID && node.CreationTimestamp.Before(&h.node.CreationTimestamp)
	}
	return h.n.cache.Rev() >= resource.Revision(h.node)
}
