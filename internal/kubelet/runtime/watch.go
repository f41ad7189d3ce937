package runtime

import (
	"context"
	"log/slog"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/kubelet/cri"
	"github.com/kemudi/kemudi/internal/task"
)

// Watch sees what becomes of sandboxes and containers.
type Watch struct {
	Client  Client
	Log     *slog.Logger
	Metrics *Metrics

	// Event is handed what the runtime tells, Again all that it has when something may
	// have been missed since began. Neither blocks.
	Event func(*runtimeapi.ContainerEventResponse)
	Again func(found map[types.UID]*Inventory, began time.Time)
	// Wanted is closed when Again is to be called: before, nothing can be missed.
	Wanted <-chan struct{}

	// Identity is what the runtime has said of itself to Identify.
	Identity Identity
}

// Identity is what the runtime says of itself.
type Identity struct {
	Name    string // "containerd"
	Version string

	StrictGroups bool // it gives a container no groups but those that its pod names, if told to
}

// Identify asks the runtime who it is and what it can do until it answers. It is
// called once, before Run.
func (w *Watch) Identify(ctx context.Context) error {
	retry := task.Backoff{Initial: 20 * time.Millisecond, Max: 2 * time.Second}
	for {
		v, err := w.Client.Version(ctx, &runtimeapi.VersionRequest{})
		if err == nil {
			var s *runtimeapi.StatusResponse
			if s, err = w.Client.Status(ctx, &runtimeapi.StatusRequest{}); err == nil {
				w.Identity = Identity{v.RuntimeName, v.RuntimeVersion, s.GetFeatures().GetSupplementalGroupsPolicy()}
				return nil
			}
		}
		w.Log.Debug("container runtime does not answer yet", "err", err)
		if err := task.Sleep(ctx, retry.Next()); err != nil {
			return err
		}
	}
}

// All is what the runtime has of each pod; it is asked until it answers.
func (w *Watch) All(ctx context.Context) (map[types.UID]*Inventory, error) {
	retry := task.Backoff{Initial: 100 * time.Millisecond, Max: 5 * time.Second}
	for {
		began := time.Now()
		found, err := list(ctx, w.Client)
		if err == nil {
			w.Metrics.listed(began)
			return found, nil
		}
		w.Log.Warn("look for what runs already", "err", err)
		if err := task.Sleep(ctx, retry.Next()); err != nil {
			return nil, err
		}
	}
}

// Run hands on the runtime's events. When the stream breaks, it looks for itself
// once it is back.
func (w *Watch) Run(ctx context.Context) error {
	retry := task.Backoff{Initial: 100 * time.Millisecond, Max: 5 * time.Second}
	for {
		stream, err := w.Client.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
		w.Metrics.followed(err)
		if err == nil {
			w.lookAgain(ctx)
			for {
				var e *runtimeapi.ContainerEventResponse
				if e, err = stream.Recv(); err != nil {
					break
				}
				retry.Reset()
				w.Event(e)
			}
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if status.Code(err) == codes.Unimplemented {
			return w.lookRegularly(ctx)
		}
		w.Log.Warn("follow container events", "err", err)
		if err := task.Sleep(ctx, retry.Next()); err != nil {
			return err
		}
	}
}

// lookInterval is how often a runtime that tells no events is looked at.
const lookInterval = time.Second

// lookRegularly does without events: older runtimes have none.
func (w *Watch) lookRegularly(ctx context.Context) error {
	w.Log.Warn("the container runtime tells no events: it is looked at regularly, which takes more CPU", "interval", lookInterval)
	for {
		if err := task.Sleep(ctx, lookInterval); err != nil {
			return err
		}
		w.lookAgain(ctx)
	}
}

// lookAgain hands on what the runtime has now, if that is wanted yet.
func (w *Watch) lookAgain(ctx context.Context) {
	select {
	case <-w.Wanted:
	default:
		return
	}
	began := time.Now()
	found, err := list(ctx, w.Client)
	if err != nil {
		w.Log.Warn("look for what runs", "err", err)
		return
	}
	w.Metrics.listed(began)
	w.Again(found, began)
}

// PodOf is the pod that an event is about; empty if it does not say.
func PodOf(e *runtimeapi.ContainerEventResponse) types.UID {
	uid := types.UID(e.GetPodSandboxStatus().GetMetadata().GetUid())
	if uid == "" {
		for _, c := range e.ContainersStatuses {
			uid = types.UID(c.Labels[cri.LabelPodUID])
		}
	}
	return uid
}
