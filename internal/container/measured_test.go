package container

import (
	"context"
	"errors"
	"maps"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// answers is a connection whose calls have one outcome.
type answers struct {
	grpc.ClientConnInterface
	err error
}

func (a *answers) Invoke(context.Context, string, any, any, ...grpc.CallOption) error { return a.err }

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
