package container

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// echoCRI answers a few calls from what it is asked.
type echoCRI struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	runtimeapi.UnimplementedImageServiceServer
	kept *runtimeapi.PodSandboxConfig
}

func (*echoCRI) IsInitialized() bool { return true }

func (e *echoCRI) RunPodSandbox(ctx context.Context, r *runtimeapi.RunPodSandboxRequest) (*runtimeapi.RunPodSandboxResponse, error) {
	e.kept = r.Config
	ns, _ := namespaces.Namespace(ctx)
	return &runtimeapi.RunPodSandboxResponse{PodSandboxId: ns}, nil
}

func (*echoCRI) ContainerStatus(context.Context, *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	return nil, errdefs.ErrNotFound
}

// StopContainer hangs until its caller gives up.
func (*echoCRI) StopContainer(ctx context.Context, _ *runtimeapi.StopContainerRequest) (*runtimeapi.StopContainerResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// GetContainerEvents sends two events and then ends with an error, if it was asked to list nothing.
func (*echoCRI) GetContainerEvents(_ *runtimeapi.GetEventsRequest, s grpc.ServerStreamingServer[runtimeapi.ContainerEventResponse]) error {
	for _, id := range []string{"a", "b"} {
		if err := s.Send(&runtimeapi.ContainerEventResponse{ContainerId: id}); err != nil {
			return err
		}
	}
	return errdefs.ErrUnavailable
}

// StreamContainers sends one list and ends well.
func (*echoCRI) StreamContainers(_ *runtimeapi.StreamContainersRequest, s grpc.ServerStreamingServer[runtimeapi.StreamContainersResponse]) error {
	return s.Send(&runtimeapi.StreamContainersResponse{})
}

func TestDirectCallsCopyMessagesAndTranslateErrors(t *testing.T) {
	e, conn := &echoCRI{}, &directConn{}
	cri := newCRI(conn)
	conn.connect(t.Context(), e)
	defer conn.cut(0)
	config := &runtimeapi.PodSandboxConfig{Hostname: "before"}
	res, err := cri.Runtime.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: config})
	if err != nil || res.PodSandboxId != Namespace {
		t.Errorf("call: got %v, %v; want an answer from namespace %s", res, err, Namespace)
	}
	config.Hostname = "after"
	if e.kept.Hostname != "before" {
		t.Error("the service keeps the caller's message")
	}
	if _, err := cri.Runtime.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{}); grpcCode(err) != "NotFound" {
		t.Errorf("containerd's not found: got %v", err)
	}
	if _, err := cri.Runtime.Attach(t.Context(), &runtimeapi.AttachRequest{}); grpcCode(err) != "Unimplemented" {
		t.Errorf("call that is not served: got %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := cri.Runtime.StopContainer(ctx, &runtimeapi.StopContainerRequest{}); grpcCode(err) != "DeadlineExceeded" {
		t.Errorf("call past its deadline: got %v", err)
	}
}

func TestDirectStreamsEndAsTheHandlerDoes(t *testing.T) {
	conn := &directConn{}
	cri := newCRI(conn)
	conn.connect(t.Context(), &echoCRI{})
	defer conn.cut(0)
	events, err := cri.Runtime.GetContainerEvents(t.Context(), &runtimeapi.GetEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"a", "b"} {
		if ev, err := events.Recv(); err != nil || ev.ContainerId != want {
			t.Errorf("event: got %v, %v; want %s", ev, err, want)
		}
	}
	if _, err := events.Recv(); grpcCode(err) != "Unavailable" {
		t.Errorf("end with an error: got %v", err)
	}
	list, err := cri.Runtime.StreamContainers(t.Context(), &runtimeapi.StreamContainersRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := list.Recv(); err != nil {
		t.Errorf("first message: %v", err)
	}
	if _, err := list.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("end: got %v, want EOF", err)
	}
}

func TestCuttingEndsCallsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := &directConn{}
		cri := newCRI(conn)
		conn.connect(t.Context(), &echoCRI{})
		ended := make(chan error, 1)
		go func() {
			_, err := cri.Runtime.StopContainer(t.Context(), &runtimeapi.StopContainerRequest{})
			ended <- err
		}()
		synctest.Wait()
		start := time.Now()
		conn.cut(time.Hour)
		if waited := time.Since(start); waited != 0 {
			t.Errorf("cut waited %s for a call that ended at once", waited)
		}
		if err := <-ended; grpcCode(err) != "Canceled" {
			t.Errorf("call in flight: got %v, want Canceled", err)
		}
		if _, err := cri.Runtime.StopContainer(t.Context(), &runtimeapi.StopContainerRequest{}); grpcCode(err) != "Unavailable" {
			t.Errorf("call afterwards: got %v, want Unavailable", err)
		}
	})
}
