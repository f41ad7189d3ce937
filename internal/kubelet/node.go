package kubelet

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/task"
)

// How often the node tells about itself.
const (
	leaseInterval  = 10 * time.Second // renews its lease, and looks whether its state has changed
	leaseDuration  = 40 * time.Second
	reportInterval = 5 * time.Minute // writes its status although nothing has changed
	unreadyCheck   = 250 * time.Millisecond
)

// maxNodeImages is how many images a node's status lists, the largest ones.
const maxNodeImages = 50

// heartbeat registers the node, then keeps its lease and its status until ctx ends.
func (a *Agent) heartbeat(ctx context.Context) error {
	h := &heart{a: a}
	retry := task.Backoff{Initial: 100 * time.Millisecond, Max: 5 * time.Second, Jitter: 0.2}
	for {
		err := h.register(ctx)
		if err == nil {
			break
		}
		if ctx.Err() == nil {
			a.o.Log.Warn("register node", "node", a.o.NodeName, "err", err)
		}
		if err := task.Sleep(ctx, retry.Next()); err != nil {
			return err
		}
	}
	a.o.Events.Event(h.node, v1.EventTypeNormal, "Starting", "Starting kubelet.")
	nextLease := time.Now()
	for {
		if !time.Now().Before(nextLease) {
			if err := h.renew(ctx); err != nil && ctx.Err() == nil {
				a.o.Log.Warn("renew lease", "node", a.o.NodeName, "err", err)
			}
			nextLease = nextLease.Add(leaseInterval)
		}
		if err := h.report(ctx); err != nil && ctx.Err() == nil {
			a.o.Log.Warn("report node status", "node", a.o.NodeName, "err", err)
		}
		wait := time.Until(nextLease)
		if !h.ready {
			wait = min(wait, unreadyCheck)
		}
		select {
		case <-time.After(max(wait, 0)):
		case <-h.a.nodeNews:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// heart is the state of the heartbeat's goroutine.
type heart struct {
	a        *Agent
	node     *v1.Node // as last seen
	lease    leaseState
	reported time.Time
	told     string                        // the trouble reported then
	pressed  map[v1.NodeConditionType]bool // the pressure reported then
	pulled   int64                         // images pulled or removed until then
	ips      []string                      // the addresses reported then

	// What the last look has shown.
	pressure map[v1.NodeConditionType]bool
	trouble  string // why the runtime cannot run pods; empty: it can
	ready    bool
	handlers []v1.NodeRuntimeHandler
	up       sync.Once // tells that the network is up
}

// register makes the Node object, or takes it over as it is.
func (h *heart) register(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, apiDeadline)
	defer cancel()
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: h.a.o.NodeName, Labels: h.a.labels()}, Spec: v1.NodeSpec{Taints: h.a.o.Taints}}
	h.look(ctx)
	if h.a.o.ByHand {
		existing, err := h.a.nodes.Get(ctx, "", h.a.o.NodeName)
		if err != nil {
			return fmt.Errorf("get node: %w", err)
		}
		h.node = existing
		return nil
	}
	h.setStatus(ctx, &node.Status)
	created, err := h.a.nodes.Create(ctx, node)
	if apierrors.IsAlreadyExists(err) {
		return h.takeOver(ctx)
	}
	if err != nil {
		return fmt.Errorf("create node: %w", err)
	}
	h.node = created
	return nil
}

// takeOver brings the labels of an existing Node up to date.
func (h *heart) takeOver(ctx context.Context) error {
	node, err := h.a.nodes.Get(ctx, "", h.a.o.NodeName)
	if err != nil {
		return fmt.Errorf("get node: %w", err)
	}
	h.node = node
	labels := maps.Clone(node.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, h.a.labels())
	if maps.Equal(labels, node.Labels) {
		return nil
	}
	node = node.DeepCopy()
	node.Labels = labels
	if h.node, err = h.a.nodes.Update(ctx, node); err != nil {
		return fmt.Errorf("update node: %w", err)
	}
	return nil
}

func (a *Agent) labels() map[string]string {
	labels := map[string]string{
		v1.LabelHostname:          a.o.NodeName,
		v1.LabelOSStable:          runtime.GOOS,
		v1.LabelArchStable:        runtime.GOARCH,
		"beta.kubernetes.io/os":   runtime.GOOS,
		"beta.kubernetes.io/arch": runtime.GOARCH,
	}
	maps.Copy(labels, a.o.Labels)
	return labels
}

// report writes the node's status if it has changed or has not been written for
// a while.
func (h *heart) report(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, apiDeadline)
	defer cancel()
	if h.deleted() {
		h.reported = time.Time{}
		return h.register(ctx)
	}
	pulled, ips := h.a.puller.Changes(), h.a.nodeIPs()
	if !h.look(ctx) && slices.Equal(ips, h.ips) && !h.newImages(ctx, pulled) && time.Since(h.reported) < reportInterval {
		h.pulled = pulled
		return nil
	}
	if node, ok := h.a.nodeCache.Get("", h.a.o.NodeName); ok && node.UID == h.node.UID {
		h.node = node
	}
	node := h.node.DeepCopy()
	h.setStatus(ctx, &node.Status)
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; slices.Contains(ourConditions, c.Type) {
			c.LastHeartbeatTime = metav1.Now().Rfc3339Copy()
		}
	}
	written, err := h.a.nodes.UpdateStatus(ctx, node)
	if apierrors.IsConflict(err) { // somebody else was faster: once more on what is there now
		if written, err = h.a.nodes.Get(ctx, "", node.Name); err == nil {
			h.node = written
			node = written.DeepCopy()
			h.setStatus(ctx, &node.Status)
			written, err = h.a.nodes.UpdateStatus(ctx, node)
		}
	}
	if apierrors.IsNotFound(err) {
		return h.register(ctx) // somebody deleted it
	}
	if err != nil {
		return err
	}
	if first := h.reported.IsZero(); first && h.ready || !first && (h.trouble == "") != (h.told == "") {
		reason := "NodeReady"
		if !h.ready {
			reason = "NodeNotReady"
		}
		h.a.o.Events.Event(written, v1.EventTypeNormal, reason, fmt.Sprintf("Node %s status is now: %s", written.Name, reason))
	}
	h.tellPressure(written)
	h.node, h.reported, h.pulled, h.told, h.pressed, h.ips = written, time.Now(), pulled, h.trouble, h.pressure, ips
	return nil
}

// newImages reports whether the node has other images than its status says;
// pulled is how many changes there were. A pull is several of them.
func (h *heart) newImages(ctx context.Context, pulled int64) bool {
	return pulled != h.pulled && !h.a.o.Simulated && !equality.Semantic.DeepEqual(h.a.images(ctx), h.node.Status.Images)
}

// deleted reports whether somebody has deleted the Node object.
func (h *heart) deleted() bool {
	select {
	case <-h.a.nodeCache.Synced():
	default:
		return false
	}
	node, ok := h.a.nodeCache.Get("", h.a.o.NodeName)
	if ok {
		return node.UID != h.node.UID && node.CreationTimestamp.Before(&h.node.CreationTimestamp)
	}
	return h.a.nodeCache.Rev() >= objectRevision(h.node)
}

var ourConditions = []v1.NodeConditionType{v1.NodeMemoryPressure, v1.NodeDiskPressure, v1.NodePIDPressure, v1.NodeReady}

// setStatus brings s up to date with the last look.
func (h *heart) setStatus(ctx context.Context, s *v1.NodeStatus) {
	a := h.a
	s.Capacity, s.Allocatable = a.facts.capacity.DeepCopy(), a.allocatable()
	s.Addresses = nil
	for _, ip := range a.nodeIPs() {
		s.Addresses = append(s.Addresses, v1.NodeAddress{Type: v1.NodeInternalIP, Address: ip})
	}
	s.Addresses = append(s.Addresses, v1.NodeAddress{Type: v1.NodeHostName, Address: a.o.NodeName})
	s.DaemonEndpoints.KubeletEndpoint.Port = int32(a.o.Port)
	m := a.facts.machine
	s.NodeInfo = v1.NodeSystemInfo{
		MachineID: m.machineID, SystemUUID: m.systemUUID, BootID: m.bootID, KernelVersion: m.kernel, OSImage: m.osImage,
		ContainerRuntimeVersion: a.facts.runtime + "://" + a.facts.version, KubeletVersion: a.o.Version,
		OperatingSystem: runtime.GOOS, Architecture: runtime.GOARCH,
	}
	s.RuntimeHandlers = h.handlers
	if !a.o.Simulated {
		s.Images = a.images(ctx)
	}
	set := func(t v1.NodeConditionType, status v1.ConditionStatus, reason, message string) {
		setNodeCondition(s, v1.NodeCondition{Type: t, Status: status, Reason: reason, Message: message})
	}
	if h.pressure[v1.NodeMemoryPressure] {
		set(v1.NodeMemoryPressure, v1.ConditionTrue, "KubeletHasInsufficientMemory", "kubelet has insufficient memory available")
	} else {
		set(v1.NodeMemoryPressure, v1.ConditionFalse, "KubeletHasSufficientMemory", "kubelet has sufficient memory available")
	}
	if h.pressure[v1.NodeDiskPressure] {
		set(v1.NodeDiskPressure, v1.ConditionTrue, "KubeletHasDiskPressure", "kubelet has disk pressure")
	} else {
		set(v1.NodeDiskPressure, v1.ConditionFalse, "KubeletHasNoDiskPressure", "kubelet has no disk pressure")
	}
	set(v1.NodePIDPressure, v1.ConditionFalse, "KubeletHasSufficientPID", "kubelet has sufficient PID available")
	if h.ready {
		set(v1.NodeReady, v1.ConditionTrue, "KubeletReady", "kubelet is posting ready status")
	} else {
		set(v1.NodeReady, v1.ConditionFalse, "KubeletNotReady", h.trouble)
	}
}

// look asks the runtime how it is and reports whether that must be told.
func (h *heart) look(ctx context.Context) (changed bool) {
	h.trouble, h.handlers = h.a.runtimeTrouble(ctx)
	if h.ready = h.trouble == ""; h.ready {
		h.up.Do(func() { close(h.a.networkUp) })
	}
	h.a.mu.Lock()
	h.pressure = h.a.mu.pressure
	h.a.mu.Unlock()
	return h.reported.IsZero() || h.trouble != h.told || !maps.Equal(h.pressure, h.pressed)
}

func setNodeCondition(s *v1.NodeStatus, c v1.NodeCondition) {
	now := metav1.Now().Rfc3339Copy()
	c.LastHeartbeatTime, c.LastTransitionTime = now, now
	i := slices.IndexFunc(s.Conditions, func(o v1.NodeCondition) bool { return o.Type == c.Type })
	if i < 0 {
		s.Conditions = append(s.Conditions, c)
		return
	}
	c.LastHeartbeatTime = s.Conditions[i].LastHeartbeatTime
	if s.Conditions[i].Status == c.Status {
		c.LastTransitionTime = s.Conditions[i].LastTransitionTime
	}
	s.Conditions[i] = c
}

// runtimeTrouble says why the runtime cannot run pods (empty: it can), and what
// handlers it offers.
func (a *Agent) runtimeTrouble(ctx context.Context) (trouble string, handlers []v1.NodeRuntimeHandler) {
	resp, err := a.o.Runtime.Status(ctx, &runtimeapi.StatusRequest{})
	if err != nil {
		return fmt.Sprintf("container runtime is down: %v", err), nil
	}
	for _, h := range resp.RuntimeHandlers {
		out := v1.NodeRuntimeHandler{Name: h.Name}
		if f := h.Features; f != nil {
			rro, userns := f.RecursiveReadOnlyMounts, f.UserNamespaces
			out.Features = &v1.NodeRuntimeHandlerFeatures{RecursiveReadOnlyMounts: &rro, UserNamespaces: &userns}
		}
		handlers = append(handlers, out)
	}
	slices.SortFunc(handlers, func(x, y v1.NodeRuntimeHandler) int { return cmp.Compare(x.Name, y.Name) })
	for _, c := range resp.GetStatus().GetConditions() {
		switch {
		case c.Status:
		case c.Type == runtimeapi.NetworkReady:
			return fmt.Sprintf("container runtime network not ready: %s=%v reason:%s message:%s", c.Type, c.Status, c.Reason, c.Message), handlers
		case c.Type == runtimeapi.RuntimeReady:
			return fmt.Sprintf("container runtime not ready: %s=%v reason:%s message:%s", c.Type, c.Status, c.Reason, c.Message), handlers
		}
	}
	return "", handlers
}

// SetNodeIPs tells the agent that the node has other addresses now, the primary
// one first. The Node and the pods say so soon; a pod that runs keeps what it has
// been told in variables and files.
func (a *Agent) SetNodeIPs(ips []string) {
	ips = slices.Clone(ips)
	a.mu.Lock()
	a.mu.nodeIPs = ips
	a.mu.Unlock()
	for _, act := range a.allActors() {
		act.post(func(x *actor) { x.o.HostIPs = ips })
	}
	a.tellNode()
}

// nodeIPs are the node's addresses, which nobody may change.
func (a *Agent) nodeIPs() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mu.nodeIPs
}

// ImagesChanged tells the agent that others have added or removed images, for the
// node's status to say so. It does not wait.
func (a *Agent) ImagesChanged() {
	a.puller.Changed()
	a.tellNode()
}

// images lists the largest images on the node.
func (a *Agent) images(ctx context.Context) []v1.ContainerImage {
	resp, err := a.o.Images.ListImages(ctx, &runtimeapi.ListImagesRequest{})
	if err != nil {
		return nil
	}
	var out []v1.ContainerImage
	for _, im := range resp.Images {
		names := slices.Concat(im.RepoDigests, im.RepoTags)
		if len(names) == 0 {
			continue
		}
		out = append(out, v1.ContainerImage{Names: names[:min(len(names), 5)], SizeBytes: int64(im.Size)})
	}
	slices.SortFunc(out, func(x, y v1.ContainerImage) int {
		return cmp.Or(cmp.Compare(y.SizeBytes, x.SizeBytes), strings.Compare(x.Names[0], y.Names[0]))
	})
	return out[:min(len(out), maxNodeImages)]
}
