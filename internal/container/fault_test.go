package container

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/ociimage"
)

// TestKillWhileAPodStartsLeavesNoOrphan kills the runtime at many moments of a
// pod's start. What the next one lists is all there is: with that removed,
// nothing of the pod is left on the machine.
func TestKillWhileAPodStartsLeavesNoOrphan(t *testing.T) {
	if testing.Short() {
		t.Skip("kills the runtime again and again")
	}
	h := newHost(t)
	h.network = true
	h.bridge()
	h.start()
	h.busybox()
	for i := range 12 {
		after := time.Duration(5+27*i) * time.Millisecond
		h.startPodAndKill(fmt.Sprintf("pod%d", i), after)
		h.start()
		h.removeSandboxes(fmt.Sprintf("killed after %s: ", after))
	}

	// What is left of a shim that ended by itself meanwhile is a socket alone.
	h.kill()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(h.o.shimSockets(), "dead")})
	if err != nil {
		h.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		h.Fatal(err)
	}
	h.start()
	h.removeSandboxes("a socket alone: ")
}

// removeSandboxes removes all that is listed and expects that nothing is left
// of any pod then. Like the node agent it tries again: a network plugin that the
// dead process started may still be at work.
func (h *host) removeSandboxes(when string) {
	h.Helper()
	cri := h.cri()
	list, err := cri.Runtime.ListPodSandbox(h.Context(), &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		h.Fatal(err)
	}
	for _, sb := range list.Items {
		h.eventually(when+"sandbox "+sb.Id+" to be removed", func() bool {
			_, err := cri.Runtime.StopPodSandbox(h.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: sb.Id})
			if err == nil {
				_, err = cri.Runtime.RemovePodSandbox(h.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: sb.Id})
			}
			return err == nil
		})
	}
	var left []string
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); <-time.After(20 * time.Millisecond) {
		if left = h.orphans(); len(left) == 0 {
			return
		}
	}
	h.Fatalf("%s%d sandboxes were listed; left:\n%s", when, len(list.Items), strings.Join(left, "\n"))
}

// startPodAndKill starts a pod with a container and kills the runtime meanwhile.
func (h *host) startPodAndKill(name string, after time.Duration) {
	cri := h.cri()
	var wg sync.WaitGroup
	wg.Go(func() {
		config := &runtimeapi.PodSandboxConfig{
			Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "default", Uid: name},
			Linux: &runtimeapi.LinuxPodSandboxConfig{
				CgroupParent:    h.o.CgroupParent + "/" + name,
				SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{NamespaceOptions: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_POD}},
			},
		}
		sb, err := cri.Runtime.RunPodSandbox(h.Context(), &runtimeapi.RunPodSandboxRequest{Config: config})
		if err != nil {
			return // killed
		}
		c, err := cri.Runtime.CreateContainer(h.Context(), &runtimeapi.CreateContainerRequest{PodSandboxId: sb.PodSandboxId, SandboxConfig: config, Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "c"}, Image: &runtimeapi.ImageSpec{Image: busyboxName}, Command: []string{"sleep", "1000"},
		}})
		if err != nil {
			return
		}
		cri.Runtime.StartContainer(h.Context(), &runtimeapi.StartContainerRequest{ContainerId: c.ContainerId})
	})
	<-time.After(after)
	h.kill()
	wg.Wait()
}

// orphans lists what pods have on the machine.
func (h *host) orphans() (left []string) {
	for _, pid := range processes() {
		exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		if err == nil && within(exe, h.o.binDir()) {
			left = append(left, fmt.Sprintf("process %d %s", pid, exe))
		}
	}
	for _, pid := range cgroupProcesses(h.o.CgroupParent) {
		left = append(left, fmt.Sprintf("process %d in our cgroup", pid))
	}
	for _, m := range h.mounts() {
		left = append(left, "mount "+m.Mountpoint)
	}
	for _, id := range names(h.o.runcRoot() + "/" + Namespace) {
		left = append(left, "runc state "+id)
	}
	for _, id := range names(h.o.stateDir() + "/io.containerd.runtime.v2.task/" + Namespace) {
		left = append(left, "bundle "+id)
	}
	for _, ip := range names(h.dir + "/ipam/test") {
		if strings.HasPrefix(ip, "10.99.0.") {
			left = append(left, "address "+ip)
		}
	}
	for _, name := range names(h.o.cniDir() + "/results") {
		left = append(left, "network result "+name)
	}
	for _, id := range names(h.o.shimSockets()) {
		left = append(left, "shim socket "+id)
	}
	return left
}

// TestKilledUnpackIsUndone kills the runtime while it writes an image's files
// through a mount of its own. The next start, and a reset, take down the mount
// and give up what was stored.
func TestKilledUnpackIsUndone(t *testing.T) {
	h := newHost(t)
	h.start()
	before := h.stored()
	archive := h.archive(ociimage.Image{Names: []string{"kemudi.local/large:1"}, Files: []ociimage.File{{Path: "/large", Content: make([]byte, 128<<20)}}})
	h.unpackAndKill(archive)
	h.start()
	if left := h.mounts(); len(left) > 0 {
		t.Errorf("mount after the next start: %s", left[0].Mountpoint)
	}
	if left := names(h.o.tempDir()); len(left) > 0 {
		t.Errorf("temporary files after the next start: %v", left)
	}
	if after := h.stored(); after != before {
		t.Errorf("blobs and snapshots after the next start: got %d, want %d as before", after, before)
	}
	mount := h.unpackAndKill(archive)
	removed, err := Reset(t.Context(), h.o)
	if err != nil || !slices.Contains(removed, "mount "+mount) {
		t.Errorf("reset: got %v, %v; want that it removes the mount %s", removed, err, mount)
	}
}

// unpackAndKill imports an archive and kills the runtime when it unpacks. It
// returns where the files were written.
func (h *host) unpackAndKill(archive []byte) (mount string) {
	h.Helper()
	ctx, cancel := context.WithCancel(h.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	images := h.images()
	wg.Go(func() { _, _ = images.Import(ctx, bytes.NewReader(archive)) })
	h.eventually("the image to be unpacked", func() bool {
		for _, m := range h.mounts() {
			mount = m.Mountpoint
		}
		return mount != ""
	})
	h.kill()
	if len(h.mounts()) == 0 {
		h.Fatal("the unpacking was over before the runtime was killed")
	}
	return mount
}
