package kubelet

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/kubelet/contain"
	"github.com/kemudi/kemudi/internal/kubelet/cri"
	"github.com/kemudi/kemudi/internal/task"
)

// inventory is what the runtime had of one pod at a time.
type inventory struct {
	at         time.Time
	sandboxes  []*runtimeapi.PodSandboxStatus
	containers []foundContainer
}

type foundContainer struct {
	status  *runtimeapi.ContainerStatus
	sandbox string
}

// list asks the runtime for all sandboxes and containers with the labels, by pod.
func (a *Agent) list(ctx context.Context, labels map[string]string) (map[types.UID]*inventory, error) {
	out := map[types.UID]*inventory{}
	began := time.Now()
	of := func(labels map[string]string) *inventory {
		uid := types.UID(labels[cri.LabelPodUID])
		if out[uid] == nil {
			out[uid] = &inventory{at: began}
		}
		return out[uid]
	}
	sandboxes, err := a.o.Runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{LabelSelector: labels}})
	if err != nil {
		return nil, fmt.Errorf("list sandboxes: %w", err)
	}
	for _, s := range sandboxes.Items {
		if s.Labels[cri.LabelPodUID] == "" {
			continue // not ours
		}
		st, err := a.o.Runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: s.Id})
		if isNotFound(err) {
			continue
		} else if err != nil {
			return nil, fmt.Errorf("inspect sandbox %s: %w", s.Id, err)
		}
		inv := of(s.Labels)
		inv.sandboxes = append(inv.sandboxes, st.Status)
	}
	containers, err := a.o.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{LabelSelector: labels}})
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	for _, c := range containers.Containers {
		if c.Labels[cri.LabelPodUID] == "" {
			continue
		}
		st, err := a.o.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.Id})
		if isNotFound(err) {
			continue
		} else if err != nil {
			return nil, fmt.Errorf("inspect container %s: %w", c.Id, err)
		}
		inv := of(c.Labels)
		inv.containers = append(inv.containers, foundContainer{st.Status, c.PodSandboxId})
	}
	return out, nil
}

// adopt starts the actors of the pods there are, and of what the runtime still
// has of pods that are not.
func (a *Agent) adopt(ctx context.Context, pods []cache.Delta) error {
	a.mu.Lock()
	a.mu.keep = true
	a.mu.Unlock()
	found, err := a.listUntilDone(ctx)
	if err != nil {
		return err
	}
	slices.SortStableFunc(pods, func(x, y cache.Delta) int { // oldest first: it was here first
		return x.Now.Object.GetCreationTimestamp().Compare(y.Now.Object.GetCreationTimestamp().Time)
	})
	mirrors := map[string]*v1.Pod{}
	for _, d := range pods {
		if pod := d.Now.Object.(*v1.Pod); mirrorOf(pod) != "" {
			mirrors[d.Now.Key] = pod
		}
	}
	a.applyManifests(found, mirrors)
	for _, d := range pods {
		uid := d.Now.Object.GetUID()
		contain.Run(a.o.Log, "update", d.Now.Key, func() { a.takeOne(d, found[uid]) })
		delete(found, uid)
	}
	for uid, inv := range found {
		a.o.Log.Info("remove pod that is not in the API", "uid", uid)
		contain.Run(a.o.Log, "what is left", string(uid), func() { a.start(newOrphan(a, uid, inv), inv) })
	}
	a.mu.Lock()
	early := a.mu.early
	a.mu.early, a.mu.keep = nil, false
	a.mu.Unlock()
	for _, e := range early {
		a.deliver(e)
	}
	a.removeLeftovers()
	close(a.running)
	return nil
}

func (a *Agent) listUntilDone(ctx context.Context) (map[types.UID]*inventory, error) {
	retry := task.Backoff{Initial: 100 * time.Millisecond, Max: 5 * time.Second}
	for {
		found, err := a.list(ctx, nil)
		if err == nil {
			return found, nil
		}
		a.o.Log.Warn("look for what runs already", "err", err)
		if err := task.Sleep(ctx, retry.Next()); err != nil {
			return nil, err
		}
	}
}

// followRuntime hands the runtime's events to the actors. When the stream
// breaks, each actor looks for itself once it is back.
func (a *Agent) followRuntime(ctx context.Context) error {
	retry := task.Backoff{Initial: 100 * time.Millisecond, Max: 5 * time.Second}
	for {
		stream, err := a.o.Runtime.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
		if err == nil {
			select {
			case <-a.running:
				a.lookAgain(ctx)
			default:
			}
			for {
				var e *runtimeapi.ContainerEventResponse
				if e, err = stream.Recv(); err != nil {
					break
				}
				retry.Reset()
				a.deliver(e)
			}
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if status.Code(err) == codes.Unimplemented {
			return a.lookRegularly(ctx)
		}
		a.o.Log.Warn("follow container events", "err", err)
		if err := task.Sleep(ctx, retry.Next()); err != nil {
			return err
		}
	}
}

// lookInterval is how often a runtime that tells no events is looked at.
const lookInterval = time.Second

// lookRegularly does without events: older runtimes have none.
func (a *Agent) lookRegularly(ctx context.Context) error {
	a.o.Log.Warn("the container runtime tells no events: it is looked at regularly, which takes more CPU", "interval", lookInterval)
	for {
		if err := task.Sleep(ctx, lookInterval); err != nil {
			return err
		}
		select {
		case <-a.running:
			a.lookAgain(ctx)
		default:
		}
	}
}

// lookAgain tells every actor what the runtime has of its pod now.
func (a *Agent) lookAgain(ctx context.Context) {
	began := time.Now()
	found, err := a.list(ctx, nil)
	if err != nil {
		a.o.Log.Warn("look for what runs", "err", err)
		return
	}
	for _, act := range a.allActors() {
		inv := found[act.uid]
		if inv == nil {
			inv = &inventory{at: began}
		}
		act.post(func(x *actor) { x.replace(inv) })
	}
}

func (a *Agent) deliver(e *runtimeapi.ContainerEventResponse) {
	uid := types.UID(e.GetPodSandboxStatus().GetMetadata().GetUid())
	if uid == "" {
		for _, c := range e.ContainersStatuses {
			uid = types.UID(c.Labels[cri.LabelPodUID])
		}
	}
	a.mu.Lock()
	act := a.mu.actors[uid]
	if act == nil && a.mu.keep {
		a.mu.early = append(a.mu.early, e)
	}
	a.mu.Unlock()
	if act != nil {
		act.post(func(x *actor) { x.observe(e) })
	}
}

// newOrphan is the actor of a pod that the API does not have any more: all that
// is known is what the runtime remembers.
func newOrphan(a *Agent, uid types.UID, inv *inventory) *actor {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}}
	setName := func(labels map[string]string) {
		pod.Name, pod.Namespace = labels[cri.LabelPodName], labels[cri.LabelPodNamespace]
	}
	for _, s := range inv.sandboxes {
		setName(s.Labels)
	}
	for _, c := range inv.containers {
		setName(c.status.Labels)
		if cri.FindContainer(pod, c.status.Metadata.Name) == nil {
			pod.Spec.Containers = append(pod.Spec.Containers, cri.OrphanContainer(c.status))
		}
	}
	act := newActor(a, pod, 0)
	act.d.Gone = true
	return act
}
