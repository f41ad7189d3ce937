package container

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/moby/sys/mountinfo"
	"github.com/vishvananda/netlink"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/ociimage"
	"github.com/kemudi/kemudi/test/image"
	"github.com/kemudi/kemudi/test/wait"
)

// The runtime under test runs in processes of its own, which are this test
// binary started again: only those can be killed.

const serveEnv = "KEMUDI_CONTAINER_TEST_SERVE"

func TestMain(m *testing.M) {
	if options := os.Getenv(serveEnv); options != "" {
		os.Exit(serve(options))
	}
	os.Exit(m.Run())
}

// serve runs the runtime until SIGTERM and prints ready when it is.
func serve(options string) int {
	var o Options
	if err := json.Unmarshal([]byte(options), &o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	o.OwnTemp, o.Logger = true, slog.New(slog.NewTextHandler(os.Stderr, nil))
	if lo, err := netlink.LinkByName("lo"); err == nil && lo.Attrs().Flags&1 == 0 { // in a network namespace of our own
		if err := netlink.LinkSetUp(lo); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 2
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	e, err := New(o)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	select {
	case <-e.Ready():
		fmt.Println("ready")
		err = <-done
	case err = <-done:
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// host is a machine with a data directory, for one test.
type host struct {
	testing.TB
	o       Options
	dir     string
	network bool // give the runtime a network namespace of its own
	proc    *exec.Cmd
	out     *bufio.Scanner
	stderr  *logBuffer
}

// logBuffer takes the output of several processes.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(data []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(data)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// newHost prepares directories; when the test ends, everything the runtime
// left is removed and looked for.
func newHost(t testing.TB) *host {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: containers, mounts and cgroups")
	}
	if !Built() {
		t.Skip("needs the embedded programs: run build/runtime/build.sh first")
	}
	dir, err := os.MkdirTemp("/tmp", "kct")
	if err != nil {
		t.Fatal(err)
	}
	h := &host{TB: t, dir: dir, o: Options{
		DataDir: filepath.Join(dir, "data"), RunDir: filepath.Join(dir, "run"),
		CgroupParent: "/" + filepath.Base(dir), RegistryConfigDir: filepath.Join(dir, "certs.d"),
	}}
	t.Cleanup(h.cleanUp)
	return h
}

func (h *host) cleanUp() {
	if h.proc != nil {
		h.kill()
	}
	if _, err := Reset(context.Background(), h.o); err != nil {
		h.Errorf("reset: %v", err)
	}
	h.verifyClean()
	if err := os.RemoveAll(h.dir); err != nil {
		h.Errorf("remove %s: %v", h.dir, err)
	}
	if h.Failed() && h.stderr != nil {
		h.Logf("runtime's log:\n%s", h.stderr)
	}
}

// verifyClean fails the test if anything of the host is left on the machine.
func (h *host) verifyClean() {
	h.Helper()
	for _, m := range h.mounts() {
		if m.Mountpoint != h.dir && m.Mountpoint != h.o.DataDir {
			h.Errorf("mount left: %s", m.Mountpoint)
		}
	}
	for _, pid := range processes() {
		exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		if err == nil && within(strings.TrimSuffix(exe, " (deleted)"), h.dir) {
			h.Errorf("process left: %d %s", pid, exe)
		}
	}
	if left := cgroupTree(h.o.CgroupParent); len(left) > 0 {
		h.Errorf("cgroups left: %v", left)
	}
	for _, path := range []string{h.o.RunDir, h.o.rootDir(), h.o.binDir()} {
		if _, err := os.Stat(path); err == nil {
			h.Errorf("file left: %s", path)
		}
	}
}

// mounts lists what is mounted in the host's directories or comes from there.
func (h *host) mounts() []*mountinfo.Info {
	h.Helper()
	mounts, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		return !within(m.Mountpoint, h.dir) && !strings.Contains(m.Root, h.dir+"/") && !strings.Contains(m.VFSOptions, h.dir+"/"), false
	})
	if err != nil {
		h.Errorf("list mounts: %v", err)
	}
	return mounts
}

// start starts the runtime and waits until it is ready.
func (h *host) start() {
	h.Helper()
	if line := h.launch(); line != "ready" {
		h.Fatalf("runtime did not start: %s", line)
	}
}

// launch starts the runtime and returns the first line it prints.
func (h *host) launch() string {
	h.Helper()
	options, err := json.Marshal(h.o)
	if err != nil {
		h.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), serveEnv+"="+string(options))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if h.network {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNET
	}
	if h.stderr == nil {
		h.stderr = &logBuffer{}
	}
	cmd.Stderr = h.stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		h.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		h.Fatal(err)
	}
	h.proc, h.out = cmd, bufio.NewScanner(stdout)
	h.out.Scan()
	return h.out.Text()
}

// kill ends the runtime as kill -9 does.
func (h *host) kill() {
	h.proc.Process.Kill()
	h.proc.Wait()
	h.proc = nil
}

// stop ends the runtime in order.
func (h *host) stop() {
	h.Helper()
	h.proc.Process.Signal(syscall.SIGTERM)
	if err := h.proc.Wait(); err != nil {
		h.Errorf("runtime ended with %v", err)
	}
	h.proc = nil
}

// cri connects to the runtime's socket.
func (h *host) cri() *CRI {
	h.Helper()
	c, closer, err := Dial("unix://" + h.o.Socket())
	if err != nil {
		h.Fatal(err)
	}
	h.Cleanup(func() { closer.Close() })
	return c
}

func (h *host) images() *Images {
	h.Helper()
	im, err := DialImages(h.o.Socket())
	if err != nil {
		h.Fatal(err)
	}
	h.Cleanup(func() { im.Close() })
	return im
}

// busybox imports the busybox image.
func (h *host) busybox() {
	h.Helper()
	names, err := h.images().Import(h.Context(), bytes.NewReader(h.archive(busyboxImage(h.TB))))
	if err != nil || !slices.Equal(names, []string{busyboxName}) {
		h.Fatalf("import busybox: got %v, %v", names, err)
	}
}

const busyboxName = "kemudi.local/busybox:1"

func busyboxImage(t testing.TB) ociimage.Image {
	t.Helper()
	im, err := image.Busybox()
	if err != nil {
		t.Skipf("needs a busybox to put into containers: %v", err)
	}
	return im
}

func (h *host) archive(images ...ociimage.Image) []byte {
	h.Helper()
	var buf bytes.Buffer
	if err := ociimage.Write(&buf, images...); err != nil {
		h.Fatal(err)
	}
	return buf.Bytes()
}

// pod is a running sandbox.
type pod struct {
	*host
	cri    *CRI
	id     string
	config *runtimeapi.PodSandboxConfig
}

func (h *host) runPod(cri *CRI, name string) *pod {
	h.Helper()
	return h.runPodBy(cri, name, "")
}

// runPodBy runs a sandbox by a handler.
func (h *host) runPodBy(cri *CRI, name, handler string) *pod {
	h.Helper()
	network := runtimeapi.NamespaceMode_NODE
	if h.network {
		network = runtimeapi.NamespaceMode_POD
	}
	config := &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "default", Uid: name + "-uid"},
		LogDirectory: filepath.Join(h.dir, "logs", name),
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent:    filepath.Join(h.o.CgroupParent, name),
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{NamespaceOptions: &runtimeapi.NamespaceOption{Network: network}},
		},
	}
	res, err := cri.Runtime.RunPodSandbox(h.Context(), &runtimeapi.RunPodSandboxRequest{Config: config, RuntimeHandler: handler})
	if err != nil {
		h.Fatalf("run sandbox: %v", err)
	}
	return &pod{host: h, cri: cri, id: res.PodSandboxId, config: config}
}

// run starts a busybox container with a command and returns its ID.
func (p *pod) run(name string, command ...string) string {
	p.Helper()
	return p.runConfig(&runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: name},
		Image:    &runtimeapi.ImageSpec{Image: busyboxName},
		Command:  command,
		LogPath:  name + ".log",
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources:       &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 64 << 20, CpuShares: 128},
			SecurityContext: &runtimeapi.LinuxContainerSecurityContext{NamespaceOptions: ownProcesses},
		},
	})
}

// ownProcesses gives each container its own process namespace, as the node
// agent does by default.
var ownProcesses = &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER}

func (p *pod) runConfig(config *runtimeapi.ContainerConfig) string {
	p.Helper()
	ctx := p.Context()
	c, err := p.cri.Runtime.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: p.id, SandboxConfig: p.config, Config: config})
	if err != nil {
		p.Fatalf("create container: %v", err)
	}
	if _, err := p.cri.Runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: c.ContainerId}); err != nil {
		p.Fatalf("start container: %v", err)
	}
	return c.ContainerId
}

func (p *pod) status(id string) *runtimeapi.ContainerStatus {
	p.Helper()
	res, err := p.cri.Runtime.ContainerStatus(p.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		p.Fatalf("container status: %v", err)
	}
	return res.Status
}

// waitExited waits until a container has ended.
func (p *pod) waitExited(id string) *runtimeapi.ContainerStatus {
	p.Helper()
	var last *runtimeapi.ContainerStatus
	p.eventually("the container to end", func() bool {
		last = p.status(id)
		return last.State == runtimeapi.ContainerState_CONTAINER_EXITED
	})
	return last
}

// exec runs a command in a container and returns what it prints.
func (p *pod) exec(id string, command ...string) string {
	p.Helper()
	res, err := p.cri.Runtime.ExecSync(p.Context(), &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: command, Timeout: 20})
	if err != nil {
		p.Fatalf("exec %q: %v", command, err)
	}
	if res.ExitCode != 0 {
		p.Fatalf("exec %q: exit code %d: %s%s", command, res.ExitCode, res.Stdout, res.Stderr)
	}
	return string(res.Stdout)
}

// eventually waits for something that no event tells of.
func (h *host) eventually(what string, done func() bool) {
	h.Helper()
	tick, timeout := time.NewTicker(10*time.Millisecond), time.After(wait.Patience)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-timeout:
			h.Fatalf("timed out waiting for %s", what)
		}
	}
}
