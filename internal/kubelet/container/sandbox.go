package container

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/kubelet/cri"
	"github.com/kemudi/kemudi/internal/kubelet/runtime"
)

// networkWait is how long a sandbox waits for the network to come up before it is
// tried, and fails, without.
const networkWait = 10 * time.Second

// RunSandbox makes a sandbox for the pod, its number attempt.
func (r *Runner) RunSandbox(ctx context.Context, pod *v1.Pod, attempt int) (*runtimeapi.PodSandboxStatus, error) {
	handler, err := r.Objects.RuntimeHandler(ctx, pod)
	if err != nil {
		return nil, err
	}
	node := r.now()
	config, notes, err := cri.Sandbox(pod, &node, attempt)
	if err != nil {
		return nil, err
	}
	for _, n := range notes {
		r.About(pod, "").Event(v1.EventTypeWarning, n.Reason, n.Message)
	}
	if err := r.checkOwnUsers(ctx, pod, handler); err != nil {
		return nil, err
	}
	own, err := r.Disk.UsersOf(pod)
	if err != nil {
		return nil, err
	}
	own.Sandbox(config)
	limits := cri.PodCgroup(pod, &node)
	r.Pins.HoldPod(pod, limits)
	if err := r.Disk.PrepareSandbox(config, limits, r.Ledger.Asked()); err != nil {
		return nil, err
	}
	if !pod.Spec.HostNetwork {
		select { // right after the machine's start, the network may need a moment
		case <-r.Node.NetworkUp():
		case <-time.After(networkWait):
			if err := r.networkDown(ctx); err != nil {
				return nil, err
			}
		case <-ctx.Done():
		}
	}
	leave, err := r.sandboxes.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	ctx, cancel := context.WithTimeout(ctx, 4*time.Minute)
	defer cancel()
	resp, err := r.Runtime.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config, RuntimeHandler: handler})
	if err != nil && !pod.Spec.HostNetwork {
		err = cmp.Or(r.networkDown(ctx), err) // each attempt would say the same in words of its own
	}
	if err != nil {
		return nil, err
	}
	st, err := r.Runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: resp.PodSandboxId})
	if err != nil {
		return nil, fmt.Errorf("inspect new sandbox: %w", err)
	}
	if ips := cri.ObservedSandbox(st.Status).IPs; r.Connected != nil && len(ips) > 0 {
		c := Connection{Pod: pod, Sandbox: resp.PodSandboxId, IPs: ips}
		c.Receive, c.Send = bandwidth(pod, "kubernetes.io/ingress-bandwidth"), bandwidth(pod, "kubernetes.io/egress-bandwidth")
		if err := r.Connected(ctx, c); err != nil {
			return nil, errors.Join(err, r.StopSandbox(ctx, c.Sandbox))
		}
	}
	return st.Status, nil
}

// ErrNetwork is why pods with a network of their own cannot have a sandbox yet.
var ErrNetwork = errors.New("network is not ready")

// networkDown asks the runtime whether it can connect pods; nil: it can, or does not answer.
func (r *Runner) networkDown(ctx context.Context) error {
	resp, err := r.Runtime.Status(ctx, &runtimeapi.StatusRequest{})
	if err != nil {
		return nil // what is asked of it fails, too, and says why
	}
	if trouble, network := cri.Trouble(resp.GetStatus()); network {
		return fmt.Errorf("%w: %s", ErrNetwork, trouble)
	}
	return nil
}

// bandwidth is how many bits a second an annotation of a pod allows; 0: it says nothing.
// What it cannot say has been refused by the runtime.
func bandwidth(pod *v1.Pod, annotation string) uint64 {
	q, err := resource.ParseQuantity(pod.Annotations[annotation])
	if err != nil || q.Sign() < 0 {
		return 0
	}
	return uint64(q.Value())
}

// StopSandbox has a sandbox give its network back.
func (r *Runner) StopSandbox(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	_, err := r.Runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id})
	if err != nil && !runtime.IsNotFound(err) {
		return fmt.Errorf("stop sandbox: %w", err)
	}
	return nil
}

// RemoveSandbox removes a sandbox.
func (r *Runner) RemoveSandbox(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	_, err := r.Runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id})
	if err != nil && !runtime.IsNotFound(err) {
		return fmt.Errorf("remove sandbox: %w", err)
	}
	return nil
}

// Remove removes a container and its log.
func (r *Runner) Remove(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	log := ""
	if r.Disk != nil {
		log = r.logOf(ctx, id)
	}
	_, err := r.Runtime.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: id})
	if err != nil && !runtime.IsNotFound(err) {
		return fmt.Errorf("remove container: %w", err)
	}
	return r.Disk.RemoveLog(log)
}

// logOf is the path of a container's log; empty if there is none.
func (r *Runner) logOf(ctx context.Context, id string) string {
	resp, err := r.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		return ""
	}
	return resp.GetStatus().GetLogPath()
}
