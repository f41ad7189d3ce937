package runtime

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/kubelet/cri"
)

// Client is what the runtime is asked by.
type Client = runtimeapi.RuntimeServiceClient

// Inventory is what the runtime had of one pod at a time.
type Inventory struct {
	At         time.Time
	Sandboxes  []*runtimeapi.PodSandboxStatus
	Containers []Found
}

// Found is a container and the ID of its sandbox.
type Found struct {
	Status  *runtimeapi.ContainerStatus
	Sandbox string
}

// list asks the runtime for the sandboxes and containers of all pods.
func list(ctx context.Context, c Client) (map[types.UID]*Inventory, error) {
	out := map[types.UID]*Inventory{}
	began := time.Now()
	of := func(labels map[string]string) *Inventory {
		uid := types.UID(labels[cri.LabelPodUID])
		if out[uid] == nil {
			out[uid] = &Inventory{At: began}
		}
		return out[uid]
	}
	sandboxes, err := c.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return nil, fmt.Errorf("list sandboxes: %w", err)
	}
	for _, s := range sandboxes.Items {
		if s.Labels[cri.LabelPodUID] == "" {
			continue // not ours
		}
		st, err := c.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: s.Id})
		if IsNotFound(err) {
			continue
		} else if err != nil {
			return nil, fmt.Errorf("inspect sandbox %s: %w", s.Id, err)
		}
		inv := of(s.Labels)
		inv.Sandboxes = append(inv.Sandboxes, st.Status)
	}
	containers, err := c.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	for _, one := range containers.Containers {
		if one.Labels[cri.LabelPodUID] == "" {
			continue
		}
		st, err := c.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: one.Id})
		if IsNotFound(err) {
			continue
		} else if err != nil {
			return nil, fmt.Errorf("inspect container %s: %w", one.Id, err)
		}
		inv := of(one.Labels)
		inv.Containers = append(inv.Containers, Found{st.Status, one.PodSandboxId})
	}
	return out, nil
}

// IsNotFound reports whether err says that the runtime does not know what it was asked about.
func IsNotFound(err error) bool { return status.Code(err) == codes.NotFound }

// Message is an error's text as users are to see it: without the wrapping of gRPC.
func Message(err error) string {
	if s, ok := status.FromError(err); ok {
		return s.Message()
	}
	return err.Error()
}
