package container

import (
	"fmt"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// BenchmarkStart measures a process from its start until CRI answers, with
// everything unpacked and no pods.
func BenchmarkStart(b *testing.B) {
	h := newHost(b)
	h.start()
	h.stop()
	for b.Loop() {
		h.start()
		b.StopTimer()
		h.stop()
		b.StartTimer()
	}
}

// BenchmarkPod measures a pod of one container on the node's network, from the
// first CRI call until its process runs, and how the time divides.
func BenchmarkPod(b *testing.B) {
	h := newHost(b)
	h.start()
	h.busybox()
	cri := h.cri()
	var sandbox, create, start, remove time.Duration
	n := 0
	for b.Loop() {
		t := time.Now()
		lap := func(d *time.Duration) { now := time.Now(); *d += now.Sub(t); t = now }
		p := h.runPod(cri, fmt.Sprintf("pod%d", n))
		lap(&sandbox)
		res, err := cri.Runtime.CreateContainer(b.Context(), &runtimeapi.CreateContainerRequest{PodSandboxId: p.id, SandboxConfig: p.config, Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "c"}, Image: &runtimeapi.ImageSpec{Image: busyboxName}, Command: []string{"sleep", "1000"}, LogPath: "c.log",
			Linux: &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{NamespaceOptions: ownProcesses}},
		}})
		if err != nil {
			b.Fatal(err)
		}
		lap(&create)
		if _, err := cri.Runtime.StartContainer(b.Context(), &runtimeapi.StartContainerRequest{ContainerId: res.ContainerId}); err != nil {
			b.Fatal(err)
		}
		lap(&start)
		b.StopTimer()
		if _, err := cri.Runtime.RemovePodSandbox(b.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.id}); err != nil {
			b.Fatal(err)
		}
		lap(&remove)
		b.StartTimer()
		n++
	}
	for unit, d := range map[string]time.Duration{"sandbox-ms": sandbox, "create-ms": create, "start-ms": start, "remove-ms": remove} {
		b.ReportMetric(float64(d.Milliseconds())/float64(n), unit)
	}
}
