package container

import (
	"context"
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/kubelet/cri"
)

// checkOwnUsers refuses a pod that asks for users of its own from a runtime that
// has none to give: run anyway, it would have those of the node.
func (r *Runner) checkOwnUsers(ctx context.Context, pod *v1.Pod, handler string) error {
	if r.Disk == nil || !cri.HasOwnUsers(pod) {
		return nil
	}
	resp, err := r.Runtime.Status(ctx, &runtimeapi.StatusRequest{})
	if err != nil {
		return fmt.Errorf("ask the runtime what it can do: %w", err)
	}
	switch {
	case slices.ContainsFunc(resp.RuntimeHandlers, func(h *runtimeapi.RuntimeHandler) bool {
		return h.Name == handler && h.Features != nil && h.Features.UserNamespaces
	}):
		return nil
	case handler != "":
		return fmt.Errorf("can't set `spec.hostUsers: false`, RuntimeClass handler %q does not support user namespaces", handler)
	}
	return errors.New("can't set `spec.hostUsers: false`, runtime does not support user namespaces")
}
