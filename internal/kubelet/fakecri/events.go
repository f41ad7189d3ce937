package fakecri

import (
	"context"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// stream is one follower of container events.
type stream struct {
	grpc.ClientStream // never called
	r                 *Runtime
	ctx               context.Context
	ready             chan struct{} // holds one token: there is something to read
	queue             []*runtimeapi.ContainerEventResponse
}

// GetContainerEvents follows every change from now on, until ctx ends.
func (r *Runtime) GetContainerEvents(ctx context.Context, _ *runtimeapi.GetEventsRequest, _ ...grpc.CallOption) (grpc.ServerStreamingClient[runtimeapi.ContainerEventResponse], error) {
	s := &stream{r: r, ctx: ctx, ready: make(chan struct{}, 1)}
	r.mu.Lock()
	r.mu.streams[s] = struct{}{}
	r.mu.Unlock()
	return s, nil
}

// Recv waits for the next event.
func (s *stream) Recv() (*runtimeapi.ContainerEventResponse, error) {
	for {
		s.r.mu.Lock()
		if len(s.queue) > 0 {
			e := s.queue[0]
			s.queue = s.queue[1:]
			s.r.mu.Unlock()
			return e, nil
		}
		s.r.mu.Unlock()
		select {
		case <-s.ready:
		case <-s.ctx.Done():
			s.r.mu.Lock()
			delete(s.r.mu.streams, s)
			s.r.mu.Unlock()
			return nil, status.FromContextError(s.ctx.Err()).Err()
		}
	}
}

// tellLocked queues an event for every follower.
func (r *Runtime) tellLocked(s *sandbox, id string, what runtimeapi.ContainerEventType) {
	if len(r.mu.streams) == 0 {
		return
	}
	e := &runtimeapi.ContainerEventResponse{ContainerId: id, ContainerEventType: what, CreatedAt: time.Now().UnixNano(), PodSandboxStatus: s.status()}
	if r.mu.sandboxes[s.id] != nil {
		for _, id := range slices.Sorted(maps.Keys(r.mu.containers)) {
			if c := r.mu.containers[id]; c.sandbox == s {
				e.ContainersStatuses = append(e.ContainersStatuses, c.status())
			}
		}
	}
	for st := range r.mu.streams {
		st.queue = append(st.queue, e)
		select {
		case st.ready <- struct{}{}:
		default: // it knows already
		}
	}
}
