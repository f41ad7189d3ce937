package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/test/wait"
)

// foreignRuntime is a containerd as Debian packages it, with root, state and socket of its own.
type foreignRuntime struct {
	*apart
	dir, socket string
}

// newForeign starts one on the machine, with the tests' images in it.
func newForeign(t *testing.T, a *apart, plugins string) *foreignRuntime {
	t.Helper()
	f := &foreignRuntime{apart: a, dir: filepath.Join(a.Dir, "ctd"), socket: filepath.Join(a.Dir, "ctd/s.sock")}
	if err := os.MkdirAll(f.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	config := a.write(t, "containerd.toml", fmt.Sprintf(`version = 2
root = %q
state = %q
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs", "io.containerd.internal.v1.opt"]
[grpc]
  address = %q
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "kemudi.local/agnhost:1"
  netns_mounts_under_state_dir = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = %q
    conf_dir = %q
`, f.dir+"/root", f.dir+"/state", f.socket, plugins, a.file("cni")))
	before := map[string]bool{}
	for _, dir := range sharedDirs {
		_, err := os.Stat(dir)
		before[dir] = err == nil
	}
	t.Cleanup(func() {
		for _, dir := range sharedDirs { // if it is empty
			if !before[dir] {
				_ = os.Remove(dir)
			}
		}
	})
	t.Cleanup(func() { f.killShims(t) })
	a.begin(t, a.command(context.Background(), "containerd", "--config", config))
	wait.Until(t, func() error { return f.ctr(t, "version") })
	for _, image := range a.images {
		if err := f.ctr(t, "images", "import", image); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// sharedDirs are those that any containerd makes, innermost first.
var sharedDirs = []string{"/run/containerd/s", "/run/containerd/fifo", "/run/containerd/runc/k8s.io", "/run/containerd/runc", "/run/containerd", "/opt/containerd", "/etc/containerd"}

func (f *foreignRuntime) ctr(t *testing.T, args ...string) error {
	t.Helper()
	if o := f.run(t.Context(), nil, append([]string{"ctr", "--address", f.socket, "--namespace", "k8s.io"}, args...)...); o.code != 0 {
		return fmt.Errorf("ctr %s: %s", strings.Join(args, " "), o.all())
	}
	return nil
}

// killShims ends what a failed test has left: containers outlive their containerd.
func (f *foreignRuntime) killShims(t *testing.T) {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Error(err)
	}
	for _, file := range lines {
		line, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(line), f.socket) || !strings.Contains(string(line), "containerd-shim") {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			continue
		}
		children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid)) // the kernel may not tell
		for child := range strings.FieldsSeq(string(children)) {
			if n, err := strconv.Atoi(child); err == nil {
				_ = syscall.Kill(n, syscall.SIGKILL)
			}
		}
		_ = syscall.Kill(pid, syscall.SIGKILL)
		if !t.Failed() {
			t.Errorf("a shim is left: process %d", pid)
		}
	}
}

const foreignPod = `metadata: {name: p}
spec:
  nodeName: node1
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 1
  initContainers: [{name: init, image: kemudi.local/busybox:1, command: [sh, -c, "echo begun >/v/f"], volumeMounts: [{name: v, mountPath: /v}]}]
  containers:
  - name: c
    image: kemudi.local/busybox:1
    command: [sh, -c, "cat /v/f; trap exit TERM; while [ ! -e /v/end ]; do sleep 0.1; done; exit 3"]
    volumeMounts: [{name: v, mountPath: /v}]
    readinessProbe: {exec: {command: [cat, /v/f]}, periodSeconds: 1}
    resources: {limits: {memory: 64Mi, cpu: 100m}}
  - {name: web, image: kemudi.local/web:1, args: [--port=8080], readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}}
  volumes: [{name: v, emptyDir: {}}]
`

// TestKubeletRunsPodsByTheContainerRuntimeOfOthers: Debian's containerd is reached by CRI alone.
func TestKubeletRunsPodsByTheContainerRuntimeOfOthers(t *testing.T) {
	t.Parallel()
	const install = "apt-get install containerd containernetworking-plugins"
	for _, program := range []string{"ctr", "containerd-shim-runc-v2", "runc"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%v: %s", err, install)
		}
	}
	program, err := exec.LookPath("containerd")
	if err != nil {
		t.Skipf("%v: %s", err, install)
	}
	plugins := filepath.Join(filepath.Dir(program), "../lib/cni")
	if _, err := os.Stat(filepath.Join(plugins, "loopback")); err != nil {
		t.Skipf("%v: %s", err, install)
	}
	a := newApart(t)
	a.etcd(t)
	a.apiServer(t)
	a.connect(t)
	a.answers(t, http.StatusOK, "https://"+machineIP+":6443/readyz", nil)
	pair, err := a.pki.NodeClient("node1")
	if err != nil {
		t.Fatal(err)
	}
	a.kubeconfig(t, "kubelet", pair)
	f := newForeign(t, a, plugins)
	stop := a.kubelet(t, "--container-runtime-endpoint=unix://"+f.socket)
	admin := a.kubectl()
	wait.Until(t, func() error { return second(a.client.CoreV1().Nodes().Get(t.Context(), "node1", metav1.GetOptions{})) })
	admin.do(t, "wait", patient, "--for=condition=Ready", "node/node1")
	node, err := a.client.CoreV1().Nodes().Get(t.Context(), "node1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := node.Status.NodeInfo.ContainerRuntimeVersion; !strings.HasPrefix(got, "containerd://1.") {
		t.Errorf("container runtime: got %s, want Debian's", got)
	}
	admin.do(t, "create", "serviceaccount", "default")
	a.create(t, metav1.NamespaceDefault, foreignPod)
	p := a.await(t, metav1.NamespaceDefault, "p", isReady)
	if p.Status.PodIP == "" || !strings.HasPrefix(p.Status.PodIP, "10.244.0.") {
		t.Errorf("got address %q, want one of the network that others configured", p.Status.PodIP)
	}
	if body, err := get(a.host, "http://"+p.Status.PodIP+":8080/"); err != nil || body == "" {
		t.Errorf("the pod answers %q, %v", body, err)
	}
	if got := admin.do(t, "logs", "p", "-c", "c"); got != "begun\n" {
		t.Errorf("log: got %q", got)
	}
	if got := admin.do(t, "exec", "p", "-c", "c", "--", "sh", "-c", "echo $HOSTNAME"); got != "p\n" {
		t.Errorf("exec: got %q", got)
	}
	id := containerID(p, "c")

	// Who begins again finds what runs.
	stop()
	stop = a.kubelet(t, "--container-runtime-endpoint=unix://"+f.socket)
	a.answers(t, http.StatusOK, "http://127.0.0.1:10248/healthz", nil)
	admin.do(t, "exec", "p", "-c", "c", "--", "touch", "/v/end")
	p = a.await(t, metav1.NamespaceDefault, "p", func(p *corev1.Pod) error {
		for _, s := range p.Status.ContainerStatuses {
			if s.Name == "c" && s.RestartCount != 1 {
				return fmt.Errorf("container c was restarted %d times, want once", s.RestartCount)
			}
		}
		return nil
	})
	for _, s := range p.Status.ContainerStatuses {
		if last := s.LastTerminationState.Terminated; s.Name == "c" && (last == nil || last.ExitCode != 3 || last.ContainerID != id) {
			t.Errorf("the container that ended: got %+v, want %s with 3", last, id)
		}
	}
	admin.do(t, "delete", "pod", "p", "--wait", patient)
	wait.Until(t, func() error { // its sandbox goes after it
		if o := a.run(t.Context(), nil, "ctr", "--address", f.socket, "--namespace", "k8s.io", "containers", "list", "--quiet"); o.code != 0 || strings.TrimSpace(o.stdout) != "" {
			return fmt.Errorf("containers that are left: %s", o.all())
		}
		return nil
	})
	stop()
	if o := a.run(t.Context(), nil, "ip", "link", "delete", "cni0"); o.code != 0 {
		t.Errorf("remove the network that the test has configured: %s", o.all())
	}
	a.host.Sysctl("net/ipv4/ip_forward", "0")
}

func containerID(p *corev1.Pod, name string) string {
	for _, s := range p.Status.ContainerStatuses {
		if s.Name == name {
			return s.ContainerID
		}
	}
	return ""
}
