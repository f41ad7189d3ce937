package node

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/nodedeclaredfeatures/features/extendwebsocketstokubelet"
	"k8s.io/component-helpers/nodedeclaredfeatures/features/inplacepodresize"
	"k8s.io/component-helpers/nodedeclaredfeatures/features/restartallcontainers"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/kubelet/cri"
)

// MostImages is how many images a node's status lists, the largest ones, unless people want others.
const MostImages = 50

var ourConditions = []v1.NodeConditionType{v1.NodeMemoryPressure, v1.NodeDiskPressure, v1.NodePIDPressure, v1.NodeReady}

// declared are the features that the node says it has (KEP-5328): a pod that needs a new one is scheduled only to nodes
// that have it.
var declared = []string{
	extendwebsocketstokubelet.ExtendWebSocketsToKubeletFeatureGate, inplacepodresize.IPPRPodLevelResourcesFeatureGate,
	inplacepodresize.IPPRInitContainersFeatureGate, restartallcontainers.RestartAllContainersOnContainerExits,
}

// setStatus brings s up to date with the last look.
func (h *heartbeat) setStatus(ctx context.Context, s *v1.NodeStatus) {
	n := h.n
	s.Capacity = n.Capacity(s.Capacity)
	s.Allocatable = n.Allocatable(s.Capacity)
	s.Addresses = n.statusAddresses(s.Addresses)
	s.DaemonEndpoints.KubeletEndpoint.Port = int32(n.o.Port)
	if volumes, ok := n.volumesInUse(); ok {
		s.VolumesInUse = volumes
	}
	m := n.o.Machine
	s.NodeInfo = v1.NodeSystemInfo{
		MachineID: m.MachineID, SystemUUID: m.SystemUUID, BootID: m.BootID, KernelVersion: m.Kernel, OSImage: m.OSImage,
		ContainerRuntimeVersion: h.runtime.Version, KubeletVersion: n.o.Version,
		OperatingSystem: runtime.GOOS, Architecture: runtime.GOARCH,
	}
	if m.Swap > 0 {
		s.NodeInfo.Swap = &v1.NodeSwapStatus{Capacity: &m.Swap}
	}
	s.RuntimeHandlers = h.handlers
	strict := h.runtime.StrictGroups
	s.DeclaredFeatures = declared
	s.Features = &v1.NodeFeatures{SupplementalGroupsPolicy: &strict}
	if !n.o.Simulated {
		s.Images = n.images(ctx)
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
	if h.pressure[v1.NodePIDPressure] {
		set(v1.NodePIDPressure, v1.ConditionTrue, "KubeletHasInsufficientPID", "kubelet has insufficient PID available")
	} else {
		set(v1.NodePIDPressure, v1.ConditionFalse, "KubeletHasSufficientPID", "kubelet has sufficient PID available")
	}
	if h.ready {
		set(v1.NodeReady, v1.ConditionTrue, "KubeletReady", "kubelet is posting ready status")
	} else {
		set(v1.NodeReady, v1.ConditionFalse, "KubeletNotReady", h.trouble)
	}
}

// look asks the runtime how it is and reports whether that must be told.
func (h *heartbeat) look(ctx context.Context) (changed bool) {
	h.trouble, h.handlers = h.n.runtimeTrouble(ctx)
	if h.n.GoingDown() {
		h.trouble = "node is shutting down"
	}
	h.ready = h.trouble == ""
	h.pressure = h.n.Pressure()
	return h.reported.IsZero() || h.trouble != h.reportedTrouble || !maps.Equal(h.pressure, h.pressed)
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
func (n *Node) runtimeTrouble(ctx context.Context) (trouble string, handlers []v1.NodeRuntimeHandler) {
	resp, err := n.o.Runtime.Status(ctx, &runtimeapi.StatusRequest{})
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
	trouble, network := cri.Trouble(resp.GetStatus())
	if trouble == "" || network {
		n.tellNetwork(trouble == "")
	}
	return trouble, handlers
}

// images lists the largest images on the node.
func (n *Node) images(ctx context.Context) []v1.ContainerImage {
	resp, err := n.o.Images.ListImages(ctx, &runtimeapi.ListImagesRequest{})
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
	most := cmp.Or(n.o.MostImages, MostImages)
	if most < 0 {
		return out
	}
	return out[:min(len(out), most)]
}

// reportPressure tells the users of the node what its status says of pressure now
// and did not say before: at first, all of it.
func (h *heartbeat) reportPressure(node *v1.Node, first bool) {
	for _, c := range []struct {
		kind     v1.NodeConditionType
		yes, not string
	}{
		{v1.NodeMemoryPressure, "NodeHasInsufficientMemory", "NodeHasSufficientMemory"},
		{v1.NodeDiskPressure, "NodeHasDiskPressure", "NodeHasNoDiskPressure"},
		{v1.NodePIDPressure, "NodeHasInsufficientPID", "NodeHasSufficientPID"},
	} {
		reason := c.not
		if h.pressure[c.kind] {
			reason = c.yes
		}
		if first || h.pressure[c.kind] != h.pressed[c.kind] {
			h.n.o.Events.Event(node, v1.EventTypeNormal, reason, fmt.Sprintf("Node %s status is now: %s", node.Name, reason))
		}
	}
}
