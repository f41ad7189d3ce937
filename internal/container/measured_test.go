package container

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/obs/tracing"
	"github.com/kemudi/kemudi/internal/obs/tracing/collector"
	"github.com/kemudi/kemudi/internal/task"
)

// answers is a connection whose calls have one outcome.
type answers struct {
	grpc.ClientConnInterface
	err  error
	sent metadata.MD // with the last one
}

func (a *answers) Invoke(ctx context.Context, _ string, _, _ any, _ ...grpc.CallOption) error {
	a.sent, _ = metadata.FromOutgoingContext(ctx)
	return a.err
}

func TestCallsOfTheRuntimeAreCounted(t *testing.T) {
	t.Parallel()
	conn, reg := &answers{}, prometheus.NewRegistry()
	c := newCRI(conn).Measured(reg)
	call := func() {
		_, _ = c.Runtime.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{RuntimeHandler: "crun"})
		_, _ = c.Runtime.ListContainerStats(t.Context(), &runtimeapi.ListContainerStatsRequest{})
		_, _ = c.Images.PullImage(t.Context(), &runtimeapi.PullImageRequest{})
	}
	call()
	conn.err = errors.New("it is down")
	call()
	found, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range found {
		for _, m := range f.Metric {
			got[f.GetName()+" "+m.Label[0].GetValue()] = m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	want := map[string]float64{"kubelet_run_podsandbox_duration_seconds crun": 2, "kubelet_run_podsandbox_errors_total crun": 1}
	for _, of := range []string{"run_podsandbox", "list_container_stats", "pull_image"} {
		want["kubelet_runtime_operations_total "+of] = 2
		want["kubelet_runtime_operations_duration_seconds "+of] = 2
		want["kubelet_runtime_operations_errors_total "+of] = 1
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for method, want := range map[string]string{
		"/runtime.v1.RuntimeService/RunPodSandbox": "run_podsandbox", "/runtime.v1.RuntimeService/ListContainerStats": "list_container_stats",
		"/runtime.v1.ImageService/ImageFsInfo": "image_fs_info", "/runtime.v1.RuntimeService/UpdateContainerResources": "update_container", "/runtime.v1.RuntimeService/ListPodSandbox": "list_podsandbox",
	} {
		if got := operation(method); got != want {
			t.Errorf("%s: got %s, want %s", method, got, want)
		}
	}
}

func TestCallsOfTheRuntimeAreTraced(t *testing.T) {
	t.Parallel()
	to := collector.New(t)
	g := task.NewGroup(context.WithoutCancel(t.Context()))
	p, err := tracing.Begin(g, tracing.Options{
		Config: &tracing.Config{Endpoint: &to.Address, SamplingRatePerMillion: ptr.To[int32](1_000_000)}, Part: "kubelet", Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	conn := &answers{}
	c := newCRI(conn)
	if c.Traced(nil) != c {
		t.Error("without a provider: got another runtime, want the same")
	}
	c = c.Traced(p)
	ctx, sync := p.Start(t.Context(), "syncPod")
	_, _ = c.Runtime.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{})
	told := conn.sent.Get("traceparent")
	conn.err = status.Error(codes.NotFound, "no such image")
	_, _ = c.Images.PullImage(ctx, &runtimeapi.PullImageRequest{})
	sync.End()
	g.Cancel(context.Canceled)
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	made, pulled := to.Within(to.The("syncPod"), "runtime.v1.RuntimeService/RunPodSandbox"), to.Within(to.The("syncPod"), "runtime.v1.ImageService/PullImage")
	if made.Kind != "client" || made.Failed || !pulled.Failed {
		t.Errorf("got %+v and %+v, want the second one failed", made, pulled)
	}
	if want := "00-" + made.Trace + "-" + made.ID + "-01"; len(told) != 1 || told[0] != want {
		t.Errorf("the runtime was told %q, want %q", told, want)
	}
}
