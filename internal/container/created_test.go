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

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// creating catches a runc that is creating a container: it stops the shim that
// waits for it, and returns the shim when runc is done. The moment is short:
// it returns 0 when started says that it has passed.
func (h *host) creating(started <-chan struct{}) (shim int) {
	h.Helper()
	runc := 0
	h.eventually("runc to create a container", func() bool {
		runc = h.runcCreate()
		select {
		case <-started:
			return true
		default:
			return runc != 0
		}
	})
	shim, _ = strconv.Atoi(h.stat(runc)[1])
	if shim == 0 {
		return 0
	}
	_ = syscall.Kill(shim, syscall.SIGSTOP)
	h.eventually("the shim to stop", func() bool { return h.stat(shim)[0] == "T" })
	h.eventually("runc to end", func() bool { state := h.stat(runc)[0]; return state == "Z" || state == "" })
	if h.stat(runc)[0] == "" {
		_ = syscall.Kill(shim, syscall.SIGCONT) // it knew already
		return 0
	}
	return shim
}

// runcCreate is a runc that is creating a container; 0 if there is none.
func (h *host) runcCreate() int {
	for _, pid := range processes() {
		cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if strings.HasPrefix(string(cmdline), filepath.Join(h.o.binDir(), "runc")+"\x00") && strings.Contains(string(cmdline), "\x00create\x00") {
			return pid
		}
	}
	return 0
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
	shim := 0
	for i := 0; shim == 0; i++ {
		shim = h.killWhileCreating(fmt.Sprintf("pod%d", i))
	}
	_ = syscall.Kill(shim, syscall.SIGCONT)
	h.start()
	h.removeSandboxes("")
}

// killWhileCreating starts a pod and kills the runtime when the pod's sandbox is
// made and its shim does not know. It returns the shim, which is stopped, or 0
// if that moment was missed.
func (h *host) killWhileCreating(name string) int {
	cri := h.cri()
	var wg sync.WaitGroup
	started := make(chan struct{})
	wg.Go(func() {
		defer close(started)
		_, _ = cri.Runtime.RunPodSandbox(h.Context(), &runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{
			Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "default", Uid: name},
			Linux: &runtimeapi.LinuxPodSandboxConfig{
				CgroupParent:    h.o.CgroupParent + "/" + name,
				SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{NamespaceOptions: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE}},
			},
		}})
	})
	defer wg.Wait()
	shim := h.creating(started)
	if shim != 0 {
		h.kill()
	}
	return shim
}
