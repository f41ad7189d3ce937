package container

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// creating waits for a runc that is creating a container, stops the shim that
// waits for it, and returns the shim when runc is done.
func (h *host) creating() (shim int) {
	h.Helper()
	var runc int
	for shim == 0 {
		h.eventually("runc to create a container", func() bool {
			for _, pid := range processes() {
				cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
				if strings.HasPrefix(string(cmdline), filepath.Join(h.o.binDir(), "runc")+"\x00") && strings.Contains(string(cmdline), "\x00create\x00") {
					runc = pid
					return true
				}
			}
			return false
		})
		stat := h.stat(runc)
		shim, _ = strconv.Atoi(stat[1])
	}
	_ = syscall.Kill(shim, syscall.SIGSTOP)
	h.eventually("runc to end", func() bool { return h.stat(runc)[0] == "Z" })
	return shim
}

// stat is a process's state, and its parent.
func (h *host) stat(pid int) []string {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, after, _ := strings.Cut(string(data), ") ")
	return append(strings.Fields(after), "", "")
}

// TestSandboxThatWasBeingCreatedIsGivenUp kills the runtime when runc has made
// a sandbox and its shim has not said so: nobody would start it, and the shim
// would not know it when it is to be ended.
func TestSandboxThatWasBeingCreatedIsGivenUp(t *testing.T) {
	if testing.Short() {
		t.Skip("kills the runtime")
	}
	h := newHost(t)
	h.start()
	h.busybox()
	cri := h.cri()
	var wg sync.WaitGroup
	wg.Go(func() {
		_, _ = cri.Runtime.RunPodSandbox(h.Context(), &runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{
			Metadata: &runtimeapi.PodSandboxMetadata{Name: "pod", Namespace: "default", Uid: "pod"},
			Linux: &runtimeapi.LinuxPodSandboxConfig{
				CgroupParent:    h.o.CgroupParent + "/pod",
				SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{NamespaceOptions: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE}},
			},
		}})
	})
	shim := h.creating()
	h.kill()
	wg.Wait()
	_ = syscall.Kill(shim, syscall.SIGCONT)
	h.start()
	cri = h.cri()
	list, err := cri.Runtime.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, sb := range list.Items {
		h.eventually("sandbox "+sb.Id+" to be removed", func() bool {
			_, err := cri.Runtime.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: sb.Id})
			if err == nil {
				_, err = cri.Runtime.RemovePodSandbox(t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: sb.Id})
			}
			return err == nil
		})
	}
	var left []string
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); <-time.After(20 * time.Millisecond) {
		if left = h.orphans(); len(left) == 0 {
			return
		}
	}
	t.Errorf("%d sandboxes were listed; left:\n%s", len(list.Items), strings.Join(left, "\n"))
}
