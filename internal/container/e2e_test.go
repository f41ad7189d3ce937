package container

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/trace"
)

func TestRunsExecsAndLogsAContainer(t *testing.T) {
	trace.Proves(t, "CNO-003", "CNO-006")
	h := newHost(t)
	h.start()
	im := busyboxImage(t)
	im.Names, im.Entrypoint, im.Cmd = []string{"kemudi.local/defaults:1"}, []string{"sh", "-c"}, []string{`echo "$GREETING from $(pwd) as $(id -u)"`}
	im.Env, im.WorkDir, im.User = []string{"PATH=/bin", "GREETING=hello"}, "/tmp", "nobody"
	if _, err := h.images().Import(t.Context(), bytes.NewReader(h.archive(busyboxImage(t), im))); err != nil {
		t.Fatal(err)
	}
	p := h.runPod(h.cri(), "one")
	v, err := p.cri.Runtime.Version(t.Context(), &runtimeapi.VersionRequest{})
	if err != nil || v.RuntimeName != "containerd" || !regexp.MustCompile(`^\d+\.\d+\.\d+$`).MatchString(v.RuntimeVersion) {
		t.Errorf("version: got %v, %v", v, err)
	}

	// What the pod leaves unset comes from the image.
	id := p.runConfig(&runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "defaults"}, Image: &runtimeapi.ImageSpec{Image: "kemudi.local/defaults:1"}, LogPath: "defaults.log",
	})
	if st := p.waitExited(id); st.ExitCode != 0 {
		t.Errorf("exit code of container with the image's defaults: got %d, want 0", st.ExitCode)
	}
	logs, err := os.ReadFile(filepath.Join(h.dir, "logs/one/defaults.log"))
	if err != nil {
		t.Fatal(err)
	}
	trace.Proves(t, "ENV-007")
	if want := regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+\S+ stdout F hello from /tmp as 65534\n$`); !want.Match(logs) {
		t.Errorf("log in CRI format: got %q, want %s", logs, want)
	}

	id = p.run("sleeper", "sh", "-c", "echo out; echo err >&2; exec sleep 1000")
	if got := p.exec(id, "cat", "/proc/1/cmdline"); got != "sleep\x001000\x00" {
		t.Errorf("command of process 1: got %q", got)
	}
	if got := p.exec(id, "cat", "/proc/self/cgroup"); !strings.Contains(got, ":memory:"+h.o.CgroupParent+"/one/"+id) && !strings.Contains(got, "0::"+h.o.CgroupParent) {
		t.Errorf("cgroup of the container: got %s, want it below %s/one", got, h.o.CgroupParent)
	}
	h.eventually("both log lines", func() bool {
		data, _ := os.ReadFile(filepath.Join(h.dir, "logs/one/sleeper.log"))
		return strings.Contains(string(data), " stdout F out\n") && strings.Contains(string(data), " stderr F err\n")
	})
	res, err := p.cri.Runtime.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: []string{"sh", "-c", "echo no >&2; exit 3"}})
	if err != nil || res.ExitCode != 3 || string(res.Stderr) != "no\n" {
		t.Errorf("exec that fails: got %v, %v; want exit code 3 and its stderr", res, err)
	}

	start := time.Now()
	if _, err := p.cri.Runtime.StopContainer(t.Context(), &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: 1}); err != nil {
		t.Fatal(err)
	}
	if st := p.status(id); st.ExitCode != 137 || time.Since(start) < time.Second {
		t.Errorf("stopped container: got exit code %d after %s, want 137 after a second of grace", st.ExitCode, time.Since(start))
	}
	if _, err := p.cri.Runtime.RemovePodSandbox(t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.id}); err != nil {
		t.Error(err)
	}
	list, err := p.cri.Runtime.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{})
	if err != nil || len(list.Containers) != 0 {
		t.Errorf("containers after the sandbox was removed: got %v, %v", list, err)
	}
}

func TestExecStreamsBothWays(t *testing.T) {
	h := newHost(t)
	h.start()
	h.busybox()
	p := h.runPod(h.cri(), "one")
	id := p.run("sleeper", "sleep", "1000")
	res, err := p.cri.Runtime.Exec(t.Context(), &runtimeapi.ExecRequest{ContainerId: id, Cmd: []string{"tr", "a-z", "A-Z"}, Stdin: true, Stdout: true})
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(res.Url)
	if err != nil {
		t.Fatal(err)
	}
	ex, err := remotecommand.NewSPDYExecutor(&restclient.Config{}, "POST", u)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := ex.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: strings.NewReader("shout"), Stdout: &out}); err != nil || out.String() != "SHOUT" {
		t.Errorf("stream through exec: got %q, %v", out.String(), err)
	}
}

func TestContainersSurviveTheRuntime(t *testing.T) {
	for _, how := range []string{"killed", "stopped"} {
		t.Run(how, func(t *testing.T) {
			h := newHost(t)
			h.start()
			h.busybox()
			p := h.runPod(h.cri(), "one")
			id := p.run("counter", "sh", "-c", "n=0; while true; do n=$((n+1)); echo $n; sleep 0.05; done")
			short := p.run("short", "sh", "-c", "sleep 0.3; echo last words; exit 7")
			before := p.exec(id, "cat", "/proc/1/stat")
			if how == "killed" {
				h.kill()
			} else {
				h.stop()
			}
			log := filepath.Join(h.dir, "logs/one/counter.log")
			h.eventually("the short container to end while no runtime runs", func() bool {
				return len(cgroupProcesses(filepath.Join(h.o.CgroupParent, "one", short))) == 0
			})
			h.start()
			p.cri = h.cri()

			if st := p.status(id); st.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
				t.Fatalf("container after the restart: got %s, want it running", st.State)
			}
			if after := p.exec(id, "cat", "/proc/1/stat"); strings.Fields(after)[21] != strings.Fields(before)[21] {
				t.Errorf("start time of process 1: got %s, want %s: it was restarted", strings.Fields(after)[21], strings.Fields(before)[21])
			}
			size := fileSize(t, log)
			h.eventually("the log to grow after the restart", func() bool { return fileSize(t, log) > size })
			if st := p.waitExited(short); st.ExitCode != 7 {
				t.Errorf("exit code of a container that ended meanwhile: got %d, want 7", st.ExitCode)
			}
			if data, _ := os.ReadFile(filepath.Join(h.dir, "logs/one/short.log")); !strings.HasSuffix(string(data), " stdout F last words\n") {
				t.Errorf("log of a container that ended meanwhile: got %q", data)
			}
			sb, err := p.cri.Runtime.PodSandboxStatus(t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: p.id})
			if err != nil || sb.Status.State != runtimeapi.PodSandboxState_SANDBOX_READY {
				t.Errorf("sandbox after the restart: got %v, %v", sb, err)
			}
		})
	}
}

func fileSize(t *testing.T, path string) int64 {
	t.Helper()
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return st.Size()
}

func TestSecondRuntimeOnOneDirectoryRefuses(t *testing.T) {
	h := newHost(t)
	h.start()
	first := h.proc
	line := h.launch()
	h.proc.Wait()
	h.proc = first
	want := fmt.Sprintf("container runtime directory %s is in use by another kemudi process (pid %d)", h.o.rootDir(), first.Process.Pid)
	if line != want {
		t.Errorf("second runtime: got %q, want %q", line, want)
	}
	if _, err := Reset(t.Context(), h.o); !errors.Is(err, ErrInUse) {
		t.Errorf("reset of a running runtime: got %v, want %v", err, ErrInUse)
	}
	if _, err := h.cri().Runtime.Version(t.Context(), &runtimeapi.VersionRequest{}); err != nil {
		t.Errorf("first runtime afterwards: %v", err)
	}
}

func TestRunningShimsKeepTheirProgramWhenItIsReplaced(t *testing.T) {
	h := newHost(t)
	h.start()
	h.busybox()
	p := h.runPod(h.cri(), "one")
	id := p.run("sleeper", "sleep", "1000")
	h.stop()
	shim := filepath.Join(h.o.binDir(), "containerd-shim-runc-v2")
	old, err := os.Stat(shim)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(h.o.binDir(), "manifest"), 0); err != nil { // an older kemudi's
		t.Fatal(err)
	}
	h.start()
	if now, err := os.Stat(shim); err != nil || os.SameFile(old, now) {
		t.Errorf("shim program was not replaced: %v", err)
	}
	p.cri = h.cri()
	if got := p.exec(id, "echo", "alive"); got != "alive\n" {
		t.Errorf("exec through the old shim: got %q", got)
	}
}

func TestResetRemovesEverything(t *testing.T) {
	h := newHost(t)
	h.start()
	h.busybox()
	p := h.runPod(h.cri(), "one")
	p.run("sleeper", "sleep", "1000")
	p.run("stubborn", "sh", "-c", "trap '' TERM; while true; do sleep 1; done")
	h.kill()
	os.Remove(filepath.Join(h.o.runcRoot(), "k8s.io", p.id, "state.json")) // half a state, as after a crash
	removed, err := Reset(t.Context(), h.o)
	if err != nil {
		t.Errorf("reset: %v", err)
	}
	h.verifyClean()
	for _, want := range []string{"container ", "(containerd-shim-runc)", "mount ", "cgroup " + h.o.CgroupParent, "file " + h.o.rootDir()} {
		want = strings.Replace(want, "containerd-shim-runc)", "containerd-shim-runc-v2)", 1)
		if !slices.ContainsFunc(removed, func(line string) bool { return strings.Contains(line, want) }) {
			t.Errorf("report of what was removed lacks %q:\n%s", want, strings.Join(removed, "\n"))
		}
	}
	if again, err := Reset(t.Context(), h.o); err != nil || len(again) != 0 {
		t.Errorf("second reset: got %v, %v; want nothing to do", again, err)
	}
}

// bridge configures a pod network for the runtime, with addresses in h.dir/ipam.
func (h *host) bridge() {
	h.Helper()
	if err := os.MkdirAll(filepath.Join(h.o.DataDir, "cni/net.d"), 0o755); err != nil {
		h.Fatal(err)
	}
	conf := fmt.Sprintf(`{"cniVersion":"1.0.0","name":"test","plugins":[{"type":"bridge","bridge":"kct0","isGateway":true,
		"ipam":{"type":"host-local","dataDir":%q,"ranges":[[{"subnet":"10.99.0.0/24"}]]}}]}`, filepath.Join(h.dir, "ipam"))
	if err := os.WriteFile(filepath.Join(h.o.DataDir, "cni/net.d/10-test.conflist"), []byte(conf), 0o644); err != nil {
		h.Fatal(err)
	}
}

func TestPodsReachEachOtherOverACNIBridge(t *testing.T) {
	h := newHost(t)
	h.network = true
	h.bridge()
	h.start()
	h.busybox()
	cri := h.cri()
	st, err := cri.Runtime.Status(t.Context(), &runtimeapi.StatusRequest{})
	if err != nil || slices.ContainsFunc(st.Status.Conditions, func(c *runtimeapi.RuntimeCondition) bool { return !c.Status }) {
		t.Errorf("status with a network: got %v, %v; want all conditions true", st, err)
	}
	server, client := h.runPod(cri, "server"), h.runPod(cri, "client")
	sb, err := cri.Runtime.PodSandboxStatus(t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: server.id})
	if err != nil || sb.Status.Network.GetIp() == "" {
		t.Fatalf("address of the pod: got %v, %v", sb, err)
	}
	server.run("web", "sh", "-c", "mkdir /www; echo hello > /www/index.html; exec httpd -f -p 80 -h /www")
	id := client.run("sleeper", "sleep", "1000")
	var got string
	h.eventually("an answer from the other pod", func() bool {
		res, err := cri.Runtime.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: []string{"wget", "-qO-", "http://" + sb.Status.Network.Ip + "/"}, Timeout: 5})
		got = string(res.GetStdout())
		return err == nil && res.ExitCode == 0
	})
	if got != "hello\n" {
		t.Errorf("answer from the other pod: got %q", got)
	}
	if got := client.exec(id, "cat", "/sys/class/net/lo/operstate", "/proc/sys/net/ipv4/ip_unprivileged_port_start"); !strings.HasSuffix(got, "\n0\n") {
		t.Errorf("network of the pod: got %q, want ports below 1024 open to all", got)
	}
	for _, p := range []*pod{server, client} {
		if _, err := cri.Runtime.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: p.id}); err != nil {
			t.Error(err)
		}
	}
	if left := names(filepath.Join(h.dir, "ipam/test")); slices.Contains(left, sb.Status.Network.Ip) {
		t.Errorf("addresses still taken after the pods were stopped: %v", left)
	}
}

// TestDirectConnectionBehavesLikeASocket runs the runtime in this process.
func TestDirectConnectionBehavesLikeASocket(t *testing.T) {
	h := newHost(t)
	h.o.Logger = testLogger(t)
	e, err := New(h.o)
	if err != nil {
		t.Fatal(err)
	}
	cri := e.CRI()
	if _, err := cri.Runtime.Version(t.Context(), &runtimeapi.VersionRequest{}); grpcCode(err) != "Unavailable" {
		t.Errorf("call before Run: got %v, want Unavailable", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
		if _, err := cri.Runtime.Version(t.Context(), &runtimeapi.VersionRequest{}); grpcCode(err) != "Unavailable" {
			t.Errorf("call after Run: got %v, want Unavailable", err)
		}
	}()
	select {
	case <-e.Ready():
	case err := <-done:
		done <- err
		t.Fatal(err)
	}
	h.busybox()
	events, err := cri.Runtime.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	p := h.runPod(cri, "one")
	id := p.run("short", "true")
	var got []string
	for len(got) == 0 || got[len(got)-1] != "CONTAINER_STOPPED_EVENT "+id {
		ev, err := events.Recv()
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, ev.ContainerEventType.String()+" "+ev.ContainerId)
	}
	for _, want := range []string{"CONTAINER_CREATED_EVENT " + id, "CONTAINER_STARTED_EVENT " + id, "CONTAINER_STARTED_EVENT " + p.id} {
		if !slices.Contains(got, want) {
			t.Errorf("events: got %v, want %q among them", got, want)
		}
	}
	_, err = cri.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: "nothing"})
	if grpcCode(err) != "NotFound" {
		t.Errorf("status of no container: got %v, want NotFound", err)
	}
	if _, err := cri.Runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.id}); err != nil {
		t.Error(err)
	}
	ended, cancelled := context.WithCancel(ctx)
	cancelled()
	if _, err := cri.Runtime.Version(ended, &runtimeapi.VersionRequest{}); grpcCode(err) != "Canceled" {
		t.Errorf("call with an ended context: got %v, want Canceled", err)
	}
}
