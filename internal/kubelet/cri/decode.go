package cri

import (
	"cmp"
	"encoding/json"
	"net"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/kubelet/podstep"
)

// ObservedSandbox is a sandbox as the pod step sees it.
func ObservedSandbox(s *runtimeapi.PodSandboxStatus) podstep.Sandbox {
	out := podstep.Sandbox{
		ID: s.Id, Attempt: int(s.GetMetadata().GetAttempt()),
		Ready: s.State == runtimeapi.PodSandboxState_SANDBOX_READY, CreatedAt: at(s.CreatedAt),
	}
	add := func(ip string) {
		if net.ParseIP(ip) != nil {
			out.IPs = append(out.IPs, ip)
		}
	}
	if n := s.Network; n != nil {
		add(n.Ip)
		for _, ip := range n.AdditionalIps {
			add(ip.Ip)
		}
	}
	return out
}

// SortIPs puts the addresses of the family of the node's first address first:
// that is the one the cluster takes for granted, whatever the runtime prefers.
func SortIPs(ips []string, node string) {
	four := func(ip string) bool { return net.ParseIP(ip).To4() != nil }
	slices.SortStableFunc(ips, func(a, b string) int {
		switch {
		case four(a) == four(b):
			return 0
		case four(a) == four(node):
			return -1
		}
		return 1
	})
}

// ObservedContainer is a container as the pod step sees it.
func ObservedContainer(s *runtimeapi.ContainerStatus, sandboxID string) podstep.Container {
	a := s.Annotations
	out := podstep.Container{
		Name: s.GetMetadata().GetName(), ID: s.Id, SandboxID: sandboxID, Attempt: int(s.GetMetadata().GetAttempt()),
		State:     state(s.State),
		CreatedAt: at(s.CreatedAt), StartedAt: at(s.StartedAt), FinishedAt: at(s.FinishedAt),
		ExitCode: s.ExitCode, Reason: s.Reason, Message: s.Message,
		Image: s.GetImage().GetImage(), ImageID: s.ImageRef,
		Hash: a[annotationHash], Backoff: parseDuration(a[annotationBackoff]),
	}
	// The runtime looks at its clock once the start has returned: what is short
	// may have ended by then.
	if !out.FinishedAt.IsZero() && out.FinishedAt.Before(out.StartedAt) {
		out.StartedAt = out.FinishedAt
	}
	if u := s.GetUser().GetLinux(); u != nil {
		out.User = &v1.ContainerUser{Linux: &v1.LinuxContainerUser{UID: u.Uid, GID: u.Gid, SupplementalGroups: u.SupplementalGroups}}
	}
	var r v1.ResourceRequirements
	if text := a[annotationResources]; text != "" && json.Unmarshal([]byte(text), &r) == nil {
		out.Resources = &r
	}
	if name := strings.TrimPrefix(s.StopSignal.String(), "SIGNAL_"); s.StopSignal != runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT {
		sig := v1.Signal(name)
		out.StopSignal = &sig
	}
	return out
}

// TerminationMessage says where the container's last words are to be found.
func TerminationMessage(s *runtimeapi.ContainerStatus) (path string, fallbackToLog bool) {
	return s.Annotations[annotationMessagePath], s.Annotations[annotationMessagePolicy] == string(v1.TerminationMessageFallbackToLogsOnError)
}

func state(s runtimeapi.ContainerState) podstep.State {
	switch s {
	case runtimeapi.ContainerState_CONTAINER_CREATED:
		return podstep.Created
	case runtimeapi.ContainerState_CONTAINER_RUNNING:
		return podstep.Running
	case runtimeapi.ContainerState_CONTAINER_EXITED:
		return podstep.Exited
	}
	return podstep.Unknown
}

func at(nanos int64) time.Time {
	if nanos == 0 {
		return time.Time{}
	}
	return time.Unix(0, nanos)
}

// Sort puts sandboxes and containers into the order that podstep.Observed asks for.
func Sort(o *podstep.Observed) {
	slices.SortStableFunc(o.Sandboxes, func(a, b podstep.Sandbox) int {
		return cmp.Or(cmp.Compare(b.Attempt, a.Attempt), b.CreatedAt.Compare(a.CreatedAt))
	})
	slices.SortStableFunc(o.Containers, func(a, b podstep.Container) int {
		return cmp.Or(cmp.Compare(b.Attempt, a.Attempt), b.CreatedAt.Compare(a.CreatedAt))
	})
}

// OrphanContainer is what a container's annotations tell of its spec: enough to
// end it properly.
func OrphanContainer(s *runtimeapi.ContainerStatus) v1.Container {
	c := v1.Container{Name: s.GetMetadata().GetName(), Image: s.GetImage().GetImage()}
	var preStop v1.LifecycleHandler
	if text := s.Annotations[annotationPreStop]; text != "" && json.Unmarshal([]byte(text), &preStop) == nil {
		c.Lifecycle = &v1.Lifecycle{PreStop: &preStop}
	}
	if text := s.Annotations[annotationPorts]; text != "" {
		_ = json.Unmarshal([]byte(text), &c.Ports) // without them, named ports of the hook are not found
	}
	return c
}
