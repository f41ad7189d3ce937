package container

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestGroupsOfPods has each group take pods until it is full, or one of them fails.
func TestGroupsOfPods(t *testing.T) {
	s := groups{run: "run", of: map[string]*group{}}
	enter := func(pod string) string {
		g := s.join()
		s.joined(g, pod)
		return g.name
	}
	for i := range podsOfShim {
		if got := enter(fmt.Sprint("pod", i)); got != "run-1" {
			t.Fatalf("pod %d is in %s", i, got)
		}
	}
	for _, step := range []struct{ does, want string }{
		{"enter a", "run-2"}, // the first is full
		{"leave pod7", ""},   // and has room now
		{"leave pod7", ""},   // which is said once more
		{"enter b", "run-1"},
		{"enter c", "run-2"},
		{"fail", "run-2"}, // whatever the reason was
		{"enter d", "run-3"},
		{"leave d", ""}, // its shim is about to end
		{"enter e", "run-4"},
		{"leave of another process", ""},
	} {
		does, pod, _ := strings.Cut(step.does, " ")
		got := ""
		switch does {
		case "enter":
			got = enter(pod)
		case "leave":
			s.leave(pod)
		case "fail":
			g := s.join()
			got = g.name
			s.failed(g)
		}
		if got != step.want {
			t.Errorf("%s: got %q, want %q", step.does, got, step.want)
		}
	}
}

// shims are the processes that containers have for shims.
func (h *host) shims() (pids []int) {
	for _, pid := range processes() {
		if _, ours := shimOf(h.o, pid); ours && !deleting(pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// TestPodsShareAShim has pods in one shim: they go on when the runtime and when
// the pod that the shim was started for are gone, and each ends by itself.
func TestPodsShareAShim(t *testing.T) {
	if testing.Short() {
		t.Skip("runs containers")
	}
	h := newHost(t)
	h.start()
	h.busybox()
	cri := h.cri()
	one, two := h.runPod(cri, "one"), h.runPod(cri, "two")
	one.run("c", "sleep", "1000")
	c := two.run("c", "sh", "-c", "trap 'exit 3' TERM; while :; do sleep 0.1; done")
	shims := h.shims()
	if len(shims) != 1 {
		t.Fatalf("two pods have the shims %v", shims)
	}
	remove := func(p *pod) {
		t.Helper()
		if _, err := p.cri.Runtime.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: p.id}); err != nil {
			t.Fatal(err)
		}
		if _, err := p.cri.Runtime.RemovePodSandbox(t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.id}); err != nil {
			t.Fatal(err)
		}
	}
	remove(one)
	if got := two.exec(c, "echo", "here"); got != "here\n" {
		t.Errorf("exec when the first pod is gone: got %q", got)
	}
	h.kill()
	h.start()
	two.cri = h.cri()
	if got := two.exec(c, "echo", "here"); got != "here\n" {
		t.Errorf("exec when the runtime is another: got %q", got)
	}
	three := h.runPod(two.cri, "three")
	if got := h.shims(); len(got) != 2 || !slices.Contains(got, shims[0]) {
		t.Errorf("a pod of another runtime: the shims are %v; want %v and one more", got, shims)
	}
	if _, err := two.cri.Runtime.StopContainer(t.Context(), &runtimeapi.StopContainerRequest{ContainerId: c, Timeout: 10}); err != nil {
		t.Fatal(err)
	}
	if got := two.waitExited(c); got.ExitCode != 3 {
		t.Errorf("stopped: got exit code %d, want 3", got.ExitCode)
	}
	remove(two)
	remove(three)
	h.eventually("shims without pods to end", func() bool { return len(h.shims()) == 0 })
	if left := names(h.o.shimSockets()); len(left) > 0 {
		t.Errorf("sockets left: %v", left)
	}
}

// TestPodsOfAShimThatDiesEnd kills a shim: its pods have ended then, as if each
// had had its own, and others take their place.
func TestPodsOfAShimThatDiesEnd(t *testing.T) {
	if testing.Short() {
		t.Skip("runs containers")
	}
	h := newHost(t)
	h.start()
	h.busybox()
	cri := h.cri()
	pods := []*pod{h.runPod(cri, "one"), h.runPod(cri, "two")}
	containers := []string{pods[0].run("c", "sleep", "1000"), pods[1].run("c", "sleep", "1000")}
	for _, pid := range h.shims() {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	for i, p := range pods {
		p.waitExited(containers[i])
	}
	again := h.runPod(cri, "three")
	again.run("c", "sleep", "1000")
	h.removeSandboxes("a shim died: ")
}

// TestPodThatHangsHoldsUpNoOtherOfItsShim has a runc that never comes back: the end
// of its container cannot be dealt with any more, but that of others is.
func TestPodThatHangsHoldsUpNoOtherOfItsShim(t *testing.T) {
	if testing.Short() {
		t.Skip("runs containers")
	}
	h := newHost(t)
	script := filepath.Join(h.dir, "hangs")
	if err := os.WriteFile(script, []byte("#!/bin/sh\ncase \" $* \" in *\" kill \"*) exec sleep 2000;; esac\nexec "+h.o.binDir()+"/runc \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	h.o.Handlers = map[string]Handler{"hangs": {Options: map[string]any{"BinaryName": script}}}
	h.start()
	h.busybox()
	cri := h.cri()
	bad, good := h.runPodBy(cri, "bad", "hangs"), h.runPod(cri, "good")
	badC, goodC := bad.run("c", "sleep", "1000"), good.run("c", "sleep", "1000")
	if got := h.shims(); len(got) != 1 {
		t.Fatalf("the pods have the shims %v", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var stopping sync.WaitGroup
	defer stopping.Wait()
	defer cancel()
	stopping.Go(func() {
		_, _ = cri.Runtime.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: badC, Timeout: 100})
	})
	h.eventually("runc to hang", func() bool {
		return slices.ContainsFunc(processes(), func(pid int) bool {
			cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			return string(cmdline) == "sleep\x002000\x00" && h.stat(pid)[1] == fmt.Sprint(h.shims()[0])
		})
	})
	for _, pid := range cgroupProcesses(filepath.Join(h.o.CgroupParent, "bad")) {
		_ = syscall.Kill(pid, syscall.SIGKILL) // which the shim hears of
	}
	if _, err := cri.Runtime.StopContainer(t.Context(), &runtimeapi.StopContainerRequest{ContainerId: goodC}); err != nil {
		t.Fatal(err)
	}
	good.waitExited(goodC)
	h.runPod(cri, "another").run("c", "sleep", "1000")
	if got := h.shims(); len(got) != 1 {
		t.Errorf("the shims are %v, want one", got)
	}
}

// TestPodsThatStartAtOnceHaveOneShim begins groups with several pods at a time.
func TestPodsThatStartAtOnceHaveOneShim(t *testing.T) {
	if testing.Short() {
		t.Skip("runs containers")
	}
	h := newHost(t)
	h.start()
	h.busybox()
	cri := h.cri()
	for round := range 5 {
		var starting sync.WaitGroup
		for i := range podsOfShim {
			starting.Go(func() {
				config := &runtimeapi.PodSandboxConfig{
					Metadata: &runtimeapi.PodSandboxMetadata{Name: fmt.Sprint("pod", i), Namespace: "default", Uid: fmt.Sprint("pod", i)},
					Linux: &runtimeapi.LinuxPodSandboxConfig{
						CgroupParent:    filepath.Join(h.o.CgroupParent, fmt.Sprint("pod", i)),
						SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{NamespaceOptions: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE}},
					},
				}
				if _, err := cri.Runtime.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: config}); err != nil {
					t.Error(err)
				}
			})
		}
		starting.Wait()
		if got := h.shims(); len(got) != 1 {
			t.Errorf("round %d: %d pods that start at once have the shims %v, want one", round, podsOfShim, got)
		}
		h.removeSandboxes("started at once: ")
	}
}
