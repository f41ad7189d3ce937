package node

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/kubelet/apitest"
	"github.com/kemudi/kemudi/internal/obs/tracing"
	"github.com/kemudi/kemudi/internal/obs/tracing/collector"
	"github.com/kemudi/kemudi/internal/task"
)

// The start of a pod is one span, with what the runtime does for it below.
func e2eTraced(t *testing.T, m *machine) {
	c, g := collector.New(t), task.NewGroup(context.WithoutCancel(t.Context()))
	p, err := tracing.Begin(g, tracing.Options{
		Config: &tracing.Config{Endpoint: &c.Address, SamplingRatePerMillion: ptr.To[int32](1_000_000)}, Part: "kubelet", Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	m.end()
	m.tracing = p
	m.start()
	apitest.CreatePod(t, m.api, "traced", `{terminationGracePeriodSeconds: 1, containers: [{name: c, image: `+busybox+`, command: [sleep, "1000"]}]}`)
	m.wait("traced", "running", func(p *v1.Pod) bool { return p != nil && p.Status.Phase == v1.PodRunning })
	apitest.DeletePod(t, m.api, "traced", 1)
	m.wait("traced", "gone", func(p *v1.Pod) bool { return p == nil })
	m.end()
	m.tracing = nil
	m.start()
	g.Cancel(context.Canceled)
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	// What the runtime does for the pod, by the turn that it is done in.
	of, in := map[string]string{}, map[string]bool{}
	for _, s := range c.Spans("") {
		if s.About["k8s.pod.name"] == "traced" {
			of[s.ID] = s.Name + s.About["k8s.pod.update_type"]
		}
	}
	if !slices.Contains(slices.Collect(maps.Values(of)), "syncTerminatedPod") {
		t.Errorf("no syncTerminatedPod; there are %s", c.Names())
	}
	for _, s := range c.Spans("") {
		in[of[s.Above]+" "+s.Name] = true
	}
	const runtime = " runtime.v1.RuntimeService/"
	for _, want := range []string{
		"syncPodcreate" + runtime + "RunPodSandbox", "syncPodcreate" + runtime + "CreateContainer", "syncPodcreate" + runtime + "StartContainer",
		"syncTerminatingPod" + runtime + "StopContainer", "syncTerminatingPod" + runtime + "StopPodSandbox",
	} {
		if !in[want] {
			t.Errorf("no %s; there are %v", want, slices.Sorted(maps.Keys(in)))
		}
	}
}
