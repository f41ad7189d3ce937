package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	goruntime "runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moby/sys/mountinfo"
	"github.com/vishvananda/netlink"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"sigs.k8s.io/yaml"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/container"
	"github.com/kemudi/kemudi/internal/kubelet"
	"github.com/kemudi/kemudi/internal/kubelet/apitest"
	"github.com/kemudi/kemudi/internal/kubelet/cgroup"
	"github.com/kemudi/kemudi/internal/kubelet/volume"
	"github.com/kemudi/kemudi/internal/obs/tracing"
	"github.com/kemudi/kemudi/internal/ociimage"
	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/test/image"
	"github.com/kemudi/kemudi/test/wait"
)

// dirEnv tells the process that runs the tests, which has a network of its own,
// the directory of its machine.
const dirEnv = "KEMUDI_NODE_TEST"

// TestMain runs everything in a process of its own, with the same flags, and then
// removes what that has left.
func TestMain(m *testing.M) {
	if os.Getenv(dirEnv) != "" || cannot() != "" {
		os.Exit(m.Run())
	}
	code, err := runApart()
	if err != nil {
		fmt.Fprintln(os.Stderr, "node:", err)
		code = 1
	}
	os.Exit(code)
}

// cannot says why there are no real containers here, if so.
func cannot() string {
	switch {
	case os.Getuid() != 0:
		return "needs root: containers, mounts and cgroups"
	case !container.Built():
		return "needs the embedded programs: run build/runtime/build.sh first"
	}
	return ""
}

// runApart runs this program anew and returns its exit code. Mounts that are left
// when it has ended are an error.
func runApart() (code int, err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	dir, err := os.MkdirTemp("/tmp", "kke")
	if err == nil {
		err = os.Chmod(dir, 0o711) // a pod's own root must get to its files
	}
	if err != nil {
		return 0, err
	}
	goruntime.LockOSThread() // whose end ends the process
	cmd := exec.CommandContext(ctx, os.Args[0], os.Args[1:]...)
	cmd.Env = append(os.Environ(), dirEnv+"="+dir)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Run(); cmd.ProcessState == nil {
		return 0, err
	}
	_, resetErr := container.Reset(context.Background(), containerOptions(dir))
	_, volumesErr := volume.Reset(context.Background(), dir+"/kubelet") // of pods that stay when only some of the tests run
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	errs := []error{resetErr, volumesErr, err}
	for _, m := range mounts {
		errs = append(errs, fmt.Errorf("mount left: %s", m.Mountpoint), syscall.Unmount(m.Mountpoint, syscall.MNT_DETACH))
	}
	return cmd.ProcessState.ExitCode(), errors.Join(append(errs, os.RemoveAll(dir))...)
}

func containerOptions(dir string) container.Options {
	return container.Options{
		DataDir: dir + "/data", RunDir: dir + "/run", CNIConfDir: dir + "/cni", CgroupParent: "/" + filepath.Base(dir),
		RegistryConfigDir: dir + "/certs.d", Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
}

const busybox = "kemudi.local/busybox:1"

// machine is a node with real containers under test.
type machine struct {
	*testing.T
	dir   string
	api   *apitest.API
	cri   *container.CRI
	agent *kubelet.Agent
	end   func()

	pinning kubelet.Pinning   // of the agents that start from now on
	tracing *tracing.Provider // likewise; nil: nothing is traced
}

func newMachine(t *testing.T) *machine {
	if testing.Short() {
		t.Skip("slow")
	}
	if why := cannot(); why != "" {
		t.Skip(why)
	}
	dir := os.Getenv(dirEnv)
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		t.Fatal(err)
	}
	conf := fmt.Sprintf(`{"cniVersion":"1.0.0","name":"test","plugins":[{"type":"bridge","bridge":"kke0","isGateway":true,
		"ipam":{"type":"host-local","dataDir":%q,"ranges":[[{"subnet":"10.98.0.0/24"}]]}}]}`, dir+"/ipam")
	if err := os.MkdirAll(dir+"/cni", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/cni/10-test.conflist", []byte(conf), 0o644); err != nil {
		t.Fatal(err)
	}
	runtime, err := container.New(containerOptions(dir))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { done <- runtime.Run(ctx) }()
	select {
	case <-runtime.Ready():
	case err := <-done:
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); <-done })
	im, err := image.Busybox()
	if err != nil {
		t.Skipf("needs a busybox to put into containers: %v", err)
	}
	var archive bytes.Buffer
	if err := ociimage.Write(&archive, im); err != nil {
		t.Fatal(err)
	}
	if _, err := runtime.Images().Import(t.Context(), &archive); err != nil {
		t.Fatal(err)
	}
	m := &machine{T: t, dir: dir, api: apitest.New(t), cri: runtime.CRI()}
	m.start()
	t.Cleanup(func() { m.end() })
	return m
}

func (m *machine) start() {
	m.Helper()
	runtime := m.cri.Traced(m.tracing)
	a, err := kubelet.New(kubelet.Options{
		NodeName: "n1", Transport: m.api, Runtime: runtime.Runtime, Images: runtime.Images, Events: m.api, Tracing: m.tracing,
		NodeIPs: []string{"10.98.0.1"}, Dirs: kubelet.Dirs{RootDir: m.dir + "/kubelet", PodLogsDir: m.dir + "/logs"}, Confinement: kubelet.Confinement{CgroupParent: "/" + filepath.Base(m.dir)},
		ClusterDNS: []string{"10.96.0.10"}, Version: "v1.37.2",
		Settings: kubelet.Settings{Containers: kubelet.Containers{Processes: 5000}, Pinning: m.pinning, ManifestDir: m.dir + "/manifests", LogMaxSize: resource.QuantityValue{Quantity: resource.MustParse("100Ki")}, LogMaxFiles: 3,
			KubeReserved: kubelet.Reserved{v1.ResourceCPU: resource.MustParse("100m"), v1.ResourceMemory: resource.MustParse("128Mi"), "pid": resource.MustParse("1k")}},
		Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo})),
	})
	if err != nil {
		m.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- a.Run(ctx) }()
	m.agent = a
	m.end = func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			m.Errorf("Run: %v", err)
		}
		m.end = func() {}
	}
}

// wait waits until the pod is as wanted and returns it; nil stands for a pod
// that is not there.
func (m *machine) wait(name, what string, ok func(*v1.Pod) bool) *v1.Pod {
	m.Helper()
	ctx, cancel := context.WithTimeout(m.Context(), wait.Patience)
	defer cancel()
	for {
		pod := apitest.GetPod(m.T, m.api, name)
		if ok(pod) {
			return pod
		}
		rev := m.api.Progress.Rev()
		if err := m.api.Progress.Wait(ctx, rev+1); err != nil {
			m.Fatalf("pod %s: not %s in time: %+v\nevents:\n%s", name, what, pod, strings.Join(m.api.TakeEvents(), "\n"))
		}
	}
}

func (m *machine) ready(name string) *v1.Pod {
	m.Helper()
	return m.wait(name, "ready", func(p *v1.Pod) bool { return p != nil && core.PodReady(p) })
}

func (m *machine) finished(name string) *v1.Pod {
	m.Helper()
	return m.wait(name, "finished", func(p *v1.Pod) bool { return p != nil && core.PodTerminal(p) })
}

// get asks the agent's own API.
func (m *machine) get(path string) (int, string) {
	w := httptest.NewRecorder()
	m.agent.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

// exec runs a command in the pod's container c.
func (m *machine) exec(pod string, command ...string) string {
	m.Helper()
	p := apitest.GetPod(m.T, m.api, pod)
	id := strings.TrimPrefix(p.Status.ContainerStatuses[0].ContainerID, "containerd://")
	resp, err := m.cri.Runtime.ExecSync(m.Context(), &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: command})
	if err != nil {
		m.Fatalf("exec %v in %s: %v", command, pod, err)
	}
	return string(resp.Stdout) + string(resp.Stderr)
}

func TestPodsOnARealRuntime(t *testing.T) {
	m := newMachine(t)
	start := time.Now()
	for _, tc := range []struct {
		name string
		run  func(*testing.T, *machine)
	}{
		{"a container runs and is seen from outside", e2eBasics},
		{"environment, volumes and files are in place", e2eVolumes},
		{"limits reach the kernel", e2eLimits},
		{"containers of a pod are resized as they run", e2eResize},
		{"a pod is resized as a whole", e2eResizeWhole},
		{"a container that fails is restarted and says why", e2eFailures},
		{"probes and hooks", e2eProbes},
		{"init containers and sidecars", e2eInit},
		{"security settings", e2eSecurity},
		{"a chatty log, a full volume and a manifest", e2eGrowing},
		{"users of a pod's own", e2eUsers},
		{"devices of a plugin", e2eDevices},
		{"what newer fields ask for", e2eFeatures},
		{"volumes of a driver", e2eDriver},
		{"streams of containers", e2eStreams},
		{"an agent that starts anew keeps what runs", e2eAdopt},
		{"twenty pods at once", e2eMany},
		{"a pod of the same name is another pod", e2eAnew},
		{"containers have processors and memory for themselves", e2ePinned},
		{"what is done for pods is traced", e2eTraced},
		{"nothing is left of deleted pods", e2eGone},
	} {
		m.T = t
		t.Run(tc.name, func(t *testing.T) {
			began := time.Now()
			m.T = t
			tc.run(t, m)
			t.Logf("took %s", time.Since(began))
		})
		m.T = t
	}
	t.Logf("all in %s", time.Since(start))
}

func e2eBasics(t *testing.T, m *machine) {
	began := time.Now()
	apitest.CreatePod(t, m.api, "web", `{hostAliases: [{ip: 1.2.3.4, hostnames: [a.example]}],
		containers: [{name: c, image: `+busybox+`, command: [sh, -c, "echo out; echo err >&2; hostname; mkdir /w; echo hello >/w/index.html; exec httpd -f -p 80 -h /w"],
		readinessProbe: {httpGet: {path: /, port: 80}, periodSeconds: 1}}]}`)
	p := m.ready("web")
	t.Logf("created to ready: %s", time.Since(began))
	trace.Proves(t, "COMP-025", "PLC-005")
	if p.Status.Phase != v1.PodRunning || p.Status.PodIP == "" || p.Status.QOSClass != v1.PodQOSBestEffort {
		t.Errorf("status: got %+v", p.Status)
	}
	trace.Proves(t, "POD-018", "ENV-004")
	if got := m.exec("web", "hostname"); got != "web\n" {
		t.Errorf("host name: got %q", got)
	}
	if got := m.exec("web", "cat", "/etc/hosts"); !strings.HasPrefix(got, "# Kubernetes-managed hosts file.\n") || !strings.Contains(got, p.Status.PodIP+"\tweb\n") || !strings.Contains(got, "1.2.3.4\ta.example\n") {
		t.Errorf("hosts file: got %q", got)
	}
	if got := m.exec("web", "cat", "/etc/resolv.conf"); !strings.Contains(got, "nameserver 10.96.0.10\n") || !strings.Contains(got, "search default.svc.cluster.local svc.cluster.local cluster.local") || !strings.Contains(got, "options ndots:5") {
		t.Errorf("resolv.conf: got %q", got)
	}
	trace.Proves(t, "C-268")
	if code, got := m.get("/containerLogs/default/web/c"); code != 200 || !strings.Contains(got, "out\n") || !strings.Contains(got, "err\n") || !strings.Contains(got, "web\n") {
		t.Errorf("log: got %d %q", code, got)
	}
	if code, got := m.get("/containerLogs/default/web/c?tailLines=1&timestamps=1"); code != 200 || !regexp.MustCompile(`^\d{4}-\d\d-\d\dT\S+ (web|out|err)\n$`).MatchString(got) {
		t.Errorf("log with timestamps: got %d %q", code, got)
	}
	if code, got := m.get("/containerLogs/default/web/none"); code != 404 {
		t.Errorf("log of no container: got %d %q", code, got)
	}
	if code, got := m.get("/containerLogs/default/web/c?previous=1"); code != 400 || !strings.Contains(got, `previous terminated container "c" in pod "web" not found`) {
		t.Errorf("log of no previous container: got %d %q", code, got)
	}
	if code, got := m.get("/stats/summary"); code != 200 || !strings.Contains(got, `"name":"web"`) || !strings.Contains(got, `"imageFs":{`) || !strings.Contains(got, `"maxpid":`) || !strings.Contains(got, `"process_count":`) ||
		!strings.Contains(got, `"ephemeral-storage":{`) || !strings.Contains(got, `"logs":{`) {
		t.Errorf("summary: got %d %q", code, got)
	}
	code, scraped := m.get("/metrics/cadvisor")
	for _, want := range []string{
		`container_network_receive_bytes_total\{container="",id="[^"]+",image="",interface="eth0",name="",namespace="default",pod="web"\} [1-9]`,
		`container_threads\{container="c",id="[^"]+",image="[^"]+",name="[^"]+",namespace="default",pod="web"\} [1-9]`,
		`container_memory_working_set_bytes\{container="",id="[^"]+",image="",name="",namespace="default",pod="web"\} [1-9]`,
		`container_cpu_user_seconds_total\{container="c",`, `container_spec_memory_limit_bytes\{container="c",`, `container_memory_cache\{container="c",`,
	} {
		if code != 200 || !regexp.MustCompile(want).MatchString(scraped) {
			t.Errorf("in the form of cAdvisor: got %d, want %s in\n%s", code, want, scraped)
		}
	}
	if code, got := m.get("/runningpods/"); code != 200 || !strings.Contains(got, `"name":"web","namespace":"default"`) || !strings.Contains(got, `"containers":[{"name":"c"`) {
		t.Errorf("pods of which something runs: got %d %q", code, got)
	}
	if code, got := m.get("/metrics/probes"); code != 200 || !strings.Contains(got, `prober_probe_total{container="c",namespace="default",pod="web",pod_uid="`+string(p.UID)+`",probe_type="Readiness",result="successful"} `) {
		t.Errorf("results of probes: got %d %q", code, got)
	}
	trace.Proves(t, "KEP-2008")
	for path, want := range map[string]string{
		"none/c": "404 pod does not exist", "web/none": "404 container none does not exist", "web/c?timeout=x": "404 cannot parse value of timeout parameter",
		"web/c": "500 checkpointing of default/web/c failed (", // as there is no CRIU here
	} {
		w := httptest.NewRecorder()
		m.agent.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/checkpoint/default/"+path, nil))
		if got := fmt.Sprint(w.Code, " ", w.Body); !strings.HasPrefix(got, want) {
			t.Errorf("checkpoint of %s: got %q, want %q", path, got, want)
		}
	}
	node, err := client.For(m.api, core.Nodes).Get(t.Context(), "", "n1")
	if err != nil {
		t.Fatal(err)
	}
	trace.Proves(t, "NODE-030", "NODE-031")
	kernel, release := readFile("/proc/sys/kernel/osrelease"), readFile("/etc/os-release")
	if i := node.Status.NodeInfo; i.KernelVersion != kernel || !strings.Contains(release, i.OSImage) || i.OSImage == "" || i.KubeletVersion != "v1.37.2" || !strings.HasPrefix(i.ContainerRuntimeVersion, "containerd://") {
		t.Errorf("info of the node: got %+v, want kernel %s of\n%s", i, kernel, release)
	}
	swap := regexp.MustCompile(`(?m)^SwapTotal:\s+(\d+) kB$`).FindStringSubmatch(readFile("/proc/meminfo"))
	if got := node.Status.NodeInfo.Swap; (got == nil) != (swap[1] == "0") || got != nil && fmt.Sprint(*got.Capacity>>10) != swap[1] {
		t.Errorf("swap of the node: got %v, want %s kB", got, swap[1])
	}
}

func e2eVolumes(t *testing.T, m *machine) {
	put := func(data string) {
		cm, err := client.For(m.api, core.ConfigMaps).Get(t.Context(), "default", "cm")
		if err != nil {
			cm = &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cm"}, Data: map[string]string{"k": data}}
			_, err = client.For(m.api, core.ConfigMaps).Create(t.Context(), cm)
		} else {
			cm = cm.DeepCopy()
			cm.Data = map[string]string{"k": data}
			_, err = client.For(m.api, core.ConfigMaps).Update(t.Context(), cm)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	svc := &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "foo-service"}, Spec: v1.ServiceSpec{ClusterIP: "10.0.0.7", Ports: []v1.ServicePort{{Port: 8765, Protocol: "TCP"}}}}
	if _, err := client.For(m.api, core.Services).Create(t.Context(), svc); err != nil {
		t.Fatal(err)
	}
	apitest.CreatePod(t, m.api, "vols", `{terminationGracePeriodSeconds: 1, containers: [{name: c, image: `+busybox+`, command: [sleep, "1000"],
		resources: {requests: {cpu: 250m, memory: 32Mi}, limits: {cpu: 1250m, memory: 64Mi}},
		env: [{name: A, value: x}, {name: B, value: "$(A)-$(FOO_SERVICE_SERVICE_PORT)-$(NONE)-$$(A)"}, {name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}},
			{name: HOST, valueFrom: {fieldRef: {fieldPath: status.hostIP}}}, {name: CPU, valueFrom: {resourceFieldRef: {resource: limits.cpu}}},
			{name: MEMORY, valueFrom: {resourceFieldRef: {resource: limits.memory}}}, {name: CPU_REQUEST, valueFrom: {resourceFieldRef: {resource: requests.cpu}}},
			{name: MEMORY_REQUEST, valueFrom: {resourceFieldRef: {resource: requests.memory}}}, {name: NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}, {name: NS, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}},
			{name: K, valueFrom: {configMapKeyRef: {name: cm, key: k}}}],
		volumeMounts: [{name: cm, mountPath: /cm}, {name: mem, mountPath: /mem}, {name: e, mountPath: /e, subPathExpr: "$(A)/y"}, {name: down, mountPath: /down}, {name: cm, mountPath: /etc/one, subPath: k}]}],
		volumes: [{name: cm, configMap: {name: cm}}, {name: mem, emptyDir: {medium: Memory}}, {name: e, emptyDir: {}},
			{name: down, downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}}]}`)
	// The config map is missing at first: the pod waits for it.
	m.wait("vols", "pending", func(p *v1.Pod) bool { return p.Status.StartTime != nil })
	put("one")
	p := m.ready("vols")
	env := m.exec("vols", "env")
	for _, c := range []struct{ proves, want string }{
		{"ENV-006", "A=x"},
		{"C-330", "B=x-8765-$(NONE)-$(A)"},
		{"C-260", "NAME=vols NS=default IP=" + p.Status.PodIP},
		{"C-257", "HOST=10.98.0.1"},
		{"C-255", "CPU=2 MEMORY=67108864 CPU_REQUEST=1 MEMORY_REQUEST=33554432"},
		{"C-237", "K=one"},
		{"ENV-010", "FOO_SERVICE_SERVICE_HOST=10.0.0.7 FOO_SERVICE_SERVICE_PORT=8765 FOO_SERVICE_PORT_8765_TCP=tcp://10.0.0.7:8765"},
	} {
		trace.Proves(t, c.proves)
		for _, want := range strings.Fields(c.want) {
			if !strings.Contains("\n"+env, "\n"+want+"\n") {
				t.Errorf("environment: no %q in %q", want, env)
			}
		}
	}
	if got := m.exec("vols", "sh", "-c", "cat /cm/k /etc/one; echo no >/cm/k; stat -f -c %T /mem; stat -c %a /mem; touch /e/f && echo written; df /down | tail -1 | cut -d' ' -f1"); got != "oneonesh: can't create /cm/k: Read-only file system\ntmpfs\n777\nwritten\ntmpfs\n" {
		if !strings.Contains(got, "oneone") || !strings.Contains(got, "Read-only") || !strings.Contains(got, "tmpfs") || !strings.Contains(got, "777") || !strings.Contains(got, "written") {
			t.Errorf("volumes: got %q", got)
		}
	}
	trace.Proves(t, "C-333", "EMPTY-001")
	if _, err := os.Stat(m.dir + "/kubelet/pods/" + string(p.UID) + "/volumes/kubernetes.io~empty-dir/e/x/y/f"); err != nil {
		t.Errorf("what was written below the variable's directory: %v", err)
	}
	put("two")
	pod := apitest.GetPod(t, m.api, "vols").DeepCopy()
	pod.Labels = map[string]string{"color": "blue"}
	if _, err := apitest.Pods(m.api).Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	trace.Proves(t, "C-379")
	m.eventually("the config map and the labels to be updated", func() bool {
		return m.exec("vols", "cat", "/cm/k", "/down/labels") == `twocolor="blue"`
	})
}

// eventually waits for what no object of the API tells.
func (m *machine) eventually(what string, ok func() bool) {
	m.Helper()
	wait.Until(m.T, func() error {
		if !ok() {
			return fmt.Errorf("no sign of %s", what)
		}
		return nil
	})
}

// checkAllPods checks that all pods together have no more than is not reserved.
func checkAllPods(t *testing.T, m *machine) {
	t.Helper()
	var node *v1.Node
	wait.Until(t, func() (err error) {
		node, err = client.For(m.api, core.Nodes).Get(t.Context(), "", "n1")
		return err
	})
	const page, reserved = 4096, 128 << 20
	memory, _, weight := cgroupFiles(m)
	all := filepath.Base(m.dir) + "/kubepods"
	checkCgroup(t, fmt.Sprintf(memory, all), fmt.Sprint((node.Status.Capacity.Memory().Value()-reserved)/page*page))
	if !groups().V2() {
		checkCgroup(t, fmt.Sprintf(weight, all), fmt.Sprint((node.Status.Capacity.Cpu().MilliValue()-100)*1024/1000))
		if got := readFile("/sys/fs/cgroup/pids/" + all + "/pids.max"); got == "max" || got == "" {
			t.Errorf("processes of all pods: got %q, want a limit", got)
		}
	}
	events := m.api.TakeEvents()
	if !slices.ContainsFunc(events, func(e string) bool {
		return strings.Contains(e, "NodeAllocatableEnforced") && strings.Contains(e, "Updated Node Allocatable limit across pods")
	}) {
		t.Errorf("events: got %q, want that the limit is told of", events)
	}
}

func e2eLimits(t *testing.T, m *machine) {
	apitest.CreatePod(t, m.api, "limited", `{terminationGracePeriodSeconds: 1, containers: [{name: c, image: `+busybox+`, command: [sleep, "1000"], resources: {requests: {cpu: 100m}, limits: {cpu: 500m, memory: 64Mi}}}]}`)
	p := m.ready("limited")
	checkAllPods(t, m)
	pod := filepath.Base(m.dir) + "/kubepods/burstable/pod" + string(p.UID)
	container := pod + "/" + strings.TrimPrefix(p.Status.ContainerStatuses[0].ContainerID, "containerd://")
	memory, quota, weight := cgroupFiles(m)
	wantWeight := "102"
	if groups().V2() {
		wantWeight = "17"
	}
	check := func(path, group, want string) {
		t.Helper()
		checkCgroup(t, fmt.Sprintf(path, group), want)
	}
	trace.Proves(t, "WHAT-021", "WHAT-027")
	for _, group := range []string{pod, container} {
		check(memory, group, "67108864")
		check(quota, group, "50000")
		check(weight, group, wantWeight)
	}
	pids := "/sys/fs/cgroup/pids/" + pod + "/pids.max"
	if groups().V2() {
		pids = "/sys/fs/cgroup/" + pod + "/pids.max"
	}
	if got := readFile(pids); got != "5000" {
		t.Errorf("processes that the pod may have: got %q, want 5000", got)
	}
	resized := apitest.GetPod(t, m.api, "limited").DeepCopy()
	resized.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceCPU: resource.MustParse("800m"), v1.ResourceMemory: resource.MustParse("96Mi")}
	if _, err := apitest.Pods(m.api).UpdateSub(t.Context(), "resize", resized); err != nil {
		t.Fatal(err)
	}
	m.wait("limited", "resized", func(p *v1.Pod) bool {
		return p.Status.ContainerStatuses[0].Resources.Limits.Cpu().MilliValue() == 800
	})
	for _, group := range []string{pod, container} {
		check(memory, group, "100663296")
		check(quota, group, "80000")
	}
	if got := m.exec("limited", "cat", "/proc/1/oom_score_adj"); got == "0\n" {
		t.Errorf("OOM score of a burstable container: got %q", got)
	}
}

func groups() cgroup.Tree { return cgroup.Open(cgroup.Top) }

// readFile returns the text of a file, or nothing if there is none.
func readFile(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// cgroupFiles are where a group's limit of memory, quota and weight of CPU stand.
func cgroupFiles(m *machine) (memory, quota, weight string) {
	if groups().V2() {
		return "/sys/fs/cgroup/%s/memory.max", "/sys/fs/cgroup/%s/cpu.max", "/sys/fs/cgroup/%s/cpu.weight"
	}
	return "/sys/fs/cgroup/memory/%s/memory.limit_in_bytes", "/sys/fs/cgroup/cpu/%s/cpu.cfs_quota_us", "/sys/fs/cgroup/cpu/%s/cpu.shares"
}

func checkCgroup(t *testing.T, path, want string) {
	t.Helper()
	if got, _, _ := strings.Cut(readFile(path), " "); got != want { // version 2 has the period after the quota
		t.Errorf("%s: got %s, want %s", path, got, want)
	}
}

func e2eResize(t *testing.T, m *machine) {
	const small, large = `{requests: {cpu: 20m, memory: 20Mi}, limits: {cpu: 30m, memory: 30Mi}}`, `{requests: {cpu: 25m, memory: 25Mi}, limits: {cpu: 35m, memory: 50Mi}}`
	containers := func(resources ...string) string {
		out := "{terminationGracePeriodSeconds: 1, containers: ["
		for i, r := range resources {
			out += fmt.Sprintf(`{name: c%d, image: %s, command: [sleep, "1000"], resources: %s},`, i, busybox, r)
		}
		return out + "]}"
	}
	apitest.CreatePod(t, m.api, "sizes", containers(small, large, `{requests: {cpu: 20m, memory: 20Mi}}`))
	m.ready("sizes")
	memory, quota, _ := cgroupFiles(m)
	for _, sizes := range [][]string{{large, small, small}, {small, large, small}} { // one up, one down, one limited anew; then back
		var asked v1.PodSpec
		if err := yaml.UnmarshalStrict([]byte(containers(sizes...)), &asked); err != nil {
			t.Fatal(err)
		}
		pod := apitest.GetPod(t, m.api, "sizes").DeepCopy()
		for i := range pod.Spec.Containers {
			pod.Spec.Containers[i].Resources = asked.Containers[i].Resources
		}
		if _, err := apitest.Pods(m.api).UpdateSub(t.Context(), "resize", pod); err != nil {
			t.Fatal(err)
		}
		trace.Proves(t, "C-278")
		p := m.wait("sizes", "resized", func(p *v1.Pod) bool {
			for i, cs := range p.Status.ContainerStatuses {
				if cs.Resources == nil || !equality.Semantic.DeepEqual(*cs.Resources, asked.Containers[i].Resources) {
					return false
				}
			}
			return core.PodReady(p) && core.PodCondition(&p.Status, v1.PodResizePending) == nil && core.PodCondition(&p.Status, v1.PodResizeInProgress) == nil
		})
		for i, cs := range p.Status.ContainerStatuses {
			if cs.RestartCount != 0 {
				t.Errorf("%s: got %d restarts, want none", cs.Name, cs.RestartCount)
			}
			group := filepath.Base(m.dir) + "/kubepods/burstable/pod" + string(p.UID) + "/" + strings.TrimPrefix(cs.ContainerID, "containerd://")
			limits := asked.Containers[i].Resources.Limits
			checkCgroup(t, fmt.Sprintf(memory, group), fmt.Sprint(limits.Memory().Value()))
			checkCgroup(t, fmt.Sprintf(quota, group), fmt.Sprint(limits.Cpu().MilliValue()*100))
		}
	}
}

// e2eResizeWhole resizes a pod as a whole: its own cgroup, and that of a container which has no limits of its own.
func e2eResizeWhole(t *testing.T, m *machine) {
	trace.Proves(t, "KEP-5419")
	apitest.CreatePod(t, m.api, "whole", `{terminationGracePeriodSeconds: 1, resources: {requests: {cpu: 20m, memory: 20Mi}, limits: {cpu: 40m, memory: 40Mi}}, containers: [
		{name: c0, image: `+busybox+`, command: [sleep, "1000"]}, {name: c1, image: `+busybox+`, command: [sleep, "1000"], resources: {limits: {cpu: 10m, memory: 10Mi}}}]}`)
	p := m.ready("whole")
	memory, quota, _ := cgroupFiles(m)
	check := func(wantMemory, wantQuota string) {
		t.Helper()
		group := filepath.Base(m.dir) + "/kubepods/burstable/pod" + string(p.UID)
		for _, group := range []string{group, group + "/" + strings.TrimPrefix(p.Status.ContainerStatuses[0].ContainerID, "containerd://")} {
			checkCgroup(t, fmt.Sprintf(memory, group), wantMemory)
			checkCgroup(t, fmt.Sprintf(quota, group), wantQuota)
		}
		own := group + "/" + strings.TrimPrefix(p.Status.ContainerStatuses[1].ContainerID, "containerd://")
		checkCgroup(t, fmt.Sprintf(memory, own), "10485760")
		checkCgroup(t, fmt.Sprintf(quota, own), "1000")
	}
	check("41943040", "4000")
	for _, size := range []struct{ cpu, memory, wantMemory, wantQuota string }{{"80m", "60Mi", "62914560", "8000"}, {"60m", "30Mi", "31457280", "6000"}} {
		pod := apitest.GetPod(t, m.api, "whole").DeepCopy()
		pod.Spec.Resources.Limits = v1.ResourceList{v1.ResourceCPU: resource.MustParse(size.cpu), v1.ResourceMemory: resource.MustParse(size.memory)}
		if _, err := apitest.Pods(m.api).UpdateSub(t.Context(), "resize", pod); err != nil {
			t.Fatal(err)
		}
		p = m.wait("whole", "resized", func(p *v1.Pod) bool {
			return p.Status.Resources != nil && p.Status.Resources.Limits.Memory().String() == size.memory && p.Status.AllocatedResources.Memory().String() == "20Mi"
		})
		if got := p.Status.ContainerStatuses[0].RestartCount; got != 0 {
			t.Errorf("got %d restarts, want none", got)
		}
		check(size.wantMemory, size.wantQuota)
	}
}

func e2eFailures(t *testing.T, m *machine) {
	apitest.CreatePod(t, m.api, "msg", `{restartPolicy: Never, containers: [
		{name: file, image: `+busybox+`, command: [sh, -c, "echo -n last words >/dev/termination-log; exit 3"]},
		{name: log, image: `+busybox+`, terminationMessagePolicy: FallbackToLogsOnError, command: [sh, -c, "echo from the log; exit 1"]},
		{name: ok, image: `+busybox+`, terminationMessagePolicy: FallbackToLogsOnError, command: [sh, -c, "echo -n OK >/dev/termination-log"]},
		{name: none, image: `+busybox+`, command: [/no/such/program]}]}`)
	p := m.finished("msg")
	want := []struct {
		code            int32
		reason, message string
		proves          []string
	}{{3, "Error", "last words", nil}, {1, "Error", "from the log\n", []string{"C-248"}}, {0, "Completed", "OK", []string{"C-247"}}, {128, "StartError", "", nil}}
	for i, w := range want {
		if len(w.proves) > 0 {
			trace.Proves(t, w.proves...)
		}
		got := p.Status.ContainerStatuses[i].State.Terminated
		if got == nil || got.ExitCode != w.code || got.Reason != w.reason || w.message != "" && got.Message != w.message {
			t.Errorf("%s: got %+v, want %+v", p.Status.ContainerStatuses[i].Name, got, w)
		}
	}
	if code, got := m.get("/metrics"); code != 200 || !strings.Contains(got, "kubelet_terminated_containers_total{container_type=\"container\",exit_code=\"3\"} 1\n") ||
		!strings.Contains(got, "kubelet_started_containers_errors_total{code=\"RunContainerError\",container_type=\"container\"} 1\n") {
		t.Errorf("metrics: got %d, no end with code 3 or no failed start", code)
	}
	trace.Proves(t, "PLC-007")
	if p.Status.Phase != v1.PodFailed {
		t.Errorf("phase: got %s", p.Status.Phase)
	}
	apitest.CreatePod(t, m.api, "crash", `{terminationGracePeriodSeconds: 1, containers: [{name: c, image: `+busybox+`, command: [sh, -c, "echo run; exit 7"]}]}`)
	p = m.wait("crash", "in back-off", func(p *v1.Pod) bool {
		cs := p.Status.ContainerStatuses
		return len(cs) == 1 && cs[0].State.Waiting != nil && cs[0].State.Waiting.Reason == "CrashLoopBackOff"
	})
	trace.Proves(t, "PLC-083")
	if cs := p.Status.ContainerStatuses[0]; p.Status.Phase != v1.PodRunning || cs.RestartCount != 1 || cs.LastTerminationState.Terminated.ExitCode != 7 {
		t.Errorf("crashed container: got %s %+v", p.Status.Phase, cs)
	}
	if code, got := m.get("/containerLogs/default/crash/c?previous=1"); code != 200 && code != 400 || code == 200 && got != "run\n" {
		t.Errorf("log of the previous container: got %d %q", code, got)
	}
	if code, got := m.get("/containerLogs/default/crash/c?follow=1"); code != 200 || got != "run\n" {
		t.Errorf("log of a container that ended: got %d %q", code, got)
	}
	apitest.CreatePod(t, m.api, "oom", `{restartPolicy: Never, containers: [{name: c, image: `+busybox+`, command: [sh, -c, "tail /dev/zero"], resources: {limits: {memory: 16Mi}}}]}`)
	p = m.finished("oom")
	if got := p.Status.ContainerStatuses[0].State.Terminated; got.Reason != "OOMKilled" || got.ExitCode != 137 {
		t.Errorf("container out of memory: got %+v", got)
	}
	apitest.CreatePod(t, m.api, "noimage", `{terminationGracePeriodSeconds: 1, containers: [{name: c, image: kemudi.local/none:1, imagePullPolicy: Never}]}`)
	m.wait("noimage", "waiting", func(p *v1.Pod) bool {
		cs := p.Status.ContainerStatuses
		return len(cs) == 1 && cs[0].State.Waiting != nil && cs[0].State.Waiting.Reason == "ErrImageNeverPull"
	})
	apitest.CreatePod(t, m.api, "novolume", `{terminationGracePeriodSeconds: 1, volumes: [{name: v, image: {reference: "127.0.0.1:1/none:1"}}],
		containers: [{name: c, image: `+busybox+`, volumeMounts: [{name: v, mountPath: /v}]}, {name: other, image: `+busybox+`, command: [sleep, "1000"]}]}`)
	p = m.wait("novolume", "waiting for the image of its volume", func(p *v1.Pod) bool {
		cs := p.Status.ContainerStatuses
		return len(cs) == 2 && cs[0].State.Waiting != nil && cs[0].State.Waiting.Reason == "ImagePullBackOff" && cs[1].State.Running != nil
	})
	trace.Proves(t, "KEP-4639")
	if got := p.Status.ContainerStatuses[0].State.Waiting.Message; !strings.HasPrefix(got, `Back-off pulling image "127.0.0.1:1/none:1": ErrImagePull: `) {
		t.Errorf("container whose volume's image is not there: got %q", got)
	}
	// It may be at its next try by now.
	if code, got := m.get("/containerLogs/default/novolume/c"); code != 400 || got != `container "c" in pod "novolume" is waiting to start: trying and failing to pull image` &&
		got != `container "c" in pod "novolume" is waiting to start: image can't be pulled` {
		t.Errorf("its log: got %d %q", code, got)
	}
}

func e2eProbes(t *testing.T, m *machine) {
	apitest.CreatePod(t, m.api, "probed", `{terminationGracePeriodSeconds: 1, containers: [{name: c, image: `+busybox+`, command: [sh, -c, "touch /ok; until [ -e /hooked ]; do sleep 0.1; done; httpd -p 81; sleep 1000"],
		startupProbe: {tcpSocket: {port: 81}, periodSeconds: 1},
		livenessProbe: {exec: {command: [cat, /ok]}, periodSeconds: 1, failureThreshold: 1},
		lifecycle: {postStart: {exec: {command: [sh, -c, "until [ -e /ok ]; do sleep 0.1; done; echo hook >/hooked"]}}, preStop: {exec: {command: [sh, -c, "echo stopping >/proc/1/fd/1"]}}}}]}`)
	m.ready("probed")
	trace.Proves(t, "HOOK-003", "HOOK-015", "PLC-046") // each has waited for the other
	if got := m.exec("probed", "cat", "/hooked"); got != "hook\n" {
		t.Errorf("postStart: got %q", got)
	}
	m.exec("probed", "rm", "/ok")
	trace.Proves(t, "PLC-022", "PLC-028", "C-308")
	m.wait("probed", "restarted", func(p *v1.Pod) bool { return p.Status.ContainerStatuses[0].RestartCount == 1 && core.PodReady(p) })
	trace.Proves(t, "HOOK-006/liveness")
	if code, got := m.get("/containerLogs/default/probed/c?previous=1"); code != 200 || got != "stopping\n" {
		t.Errorf("log of the killed container: got %d %q, want what its preStop hook wrote", code, got)
	}
	apitest.CreatePod(t, m.api, "hookless", `{terminationGracePeriodSeconds: 1, containers: [{name: c, image: `+busybox+`, command: [sleep, "1000"], lifecycle: {postStart: {exec: {command: ["false"]}}}}]}`)
	trace.Proves(t, "HOOK-018")
	m.wait("hookless", "failing", func(p *v1.Pod) bool {
		cs := p.Status.ContainerStatuses
		return len(cs) == 1 && cs[0].RestartCount > 0
	})
	events := strings.Join(m.api.TakeEvents(), "\n")
	for _, want := range []string{
		"probed spec.containers{c} Warning Unhealthy: Liveness probe failed: cat: can't open '/ok': No such file or directory",
		"probed spec.containers{c} Normal Killing: Container c failed liveness probe, will be restarted",
	} {
		if !strings.Contains(events, want) {
			t.Errorf("events: no %q in\n%s", want, events)
		}
	}
	trace.Proves(t, "HOOK-026")
	if want := "hookless spec.containers{c} Warning FailedPostStartHook: PostStartHook failed"; !strings.Contains(events, want) {
		t.Errorf("events: no %q in\n%s", want, events)
	}
}

func e2eInit(t *testing.T, m *machine) {
	apitest.CreatePod(t, m.api, "init", `{terminationGracePeriodSeconds: 1, volumes: [{name: v, emptyDir: {}}],
		initContainers: [{name: one, image: `+busybox+`, command: [sh, -c, "echo one >>/v/log"], volumeMounts: [{name: v, mountPath: /v}]},
			{name: side, restartPolicy: Always, image: `+busybox+`, command: [sh, -c, "echo side >>/v/log; sleep 1000"], volumeMounts: [{name: v, mountPath: /v}], startupProbe: {exec: {command: [grep, side, /v/log]}, periodSeconds: 1}},
			{name: two, image: `+busybox+`, command: [sh, -c, "echo two >>/v/log"], volumeMounts: [{name: v, mountPath: /v}]}],
		containers: [{name: c, image: `+busybox+`, command: [sh, -c, "echo app >>/v/log; sleep 1000"], volumeMounts: [{name: v, mountPath: /v}], readinessProbe: {exec: {command: [grep, app, /v/log]}, periodSeconds: 1}}]}`)
	p := m.ready("init")
	trace.Proves(t, "INIT-001", "INIT-005", "INIT-012", "C-264")
	if got := m.exec("init", "cat", "/v/log"); got != "one\nside\ntwo\napp\n" || !core.PodConditionTrue(p, v1.PodInitialized) {
		t.Errorf("order of the containers: got %q, conditions %+v", got, p.Status.Conditions)
	}
}

func e2eSecurity(t *testing.T, m *machine) {
	apitest.CreatePod(t, m.api, "sec", `{terminationGracePeriodSeconds: 1, securityContext: {runAsUser: 1001, runAsGroup: 2002, fsGroup: 3003, sysctls: [{name: kernel.shm_rmid_forced, value: "1"}]},
		volumes: [{name: e, emptyDir: {}}],
		containers: [{name: c, image: `+busybox+`, command: [sleep, "1000"], volumeMounts: [{name: e, mountPath: /e}],
			securityContext: {readOnlyRootFilesystem: true, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}, seccompProfile: {type: RuntimeDefault}}}]}`)
	m.ready("sec")
	got := m.exec("sec", "sh", "-c", "id; touch /e/f && stat -c %g /e/f; touch /x; grep -E 'CapEff|NoNewPrivs|Seccomp:' /proc/self/status; cat /proc/sys/kernel/shm_rmid_forced; ip link add dummy0 type dummy")
	trace.Proves(t, "C-326")
	if want := "uid=1001 gid=2002 groups=2002,3003\n"; !strings.Contains(got, want) {
		t.Errorf("users: no %q in %q", want, got)
	}
	trace.Proves(t, "C-329")
	if want := "\n1\n"; !strings.Contains(got, want) {
		t.Errorf("settings of the kernel: no %q in %q", want, got)
	}
	for _, want := range []string{"\n3003\n", "/x: Read-only file system", "CapEff:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2", "Operation not permitted"} {
		if !strings.Contains(got, want) {
			t.Errorf("security: no %q in %q", want, got)
		}
	}
	apitest.CreatePod(t, m.api, "root", `{terminationGracePeriodSeconds: 1, containers: [{name: c, image: `+busybox+`, securityContext: {runAsNonRoot: true}}]}`)
	m.wait("root", "refused", func(p *v1.Pod) bool {
		cs := p.Status.ContainerStatuses
		return len(cs) == 1 && cs[0].State.Waiting != nil && cs[0].State.Waiting.Reason == "CreateContainerConfigError" &&
			strings.Contains(cs[0].State.Waiting.Message, "container has runAsNonRoot and image will run as root")
	})
}

// e2eGrowing shows what the agent sees of files.
func e2eGrowing(t *testing.T, m *machine) {
	apitest.CreatePod(t, m.api, "full", `{terminationGracePeriodSeconds: 1, volumes: [{name: e, emptyDir: {sizeLimit: 1Mi}}], containers: [{name: c, image: `+busybox+`,
		command: [sh, -c, "ls -A /e; dd if=/dev/zero of=/e/f bs=1024 count=2048; sleep 1000"], volumeMounts: [{name: e, mountPath: /e}]}]}`)
	apitest.CreatePod(t, m.api, "loud", `{terminationGracePeriodSeconds: 1, restartPolicy: Never, containers: [{name: c, image: `+busybox+`,
		command: [sh, -c, "i=0; while [ $i -lt 5000 ]; do echo line-$i-0123456789012345678901234567890123456789; i=$((i+1)); [ $((i%100)) = 0 ] && sleep 0.4; done"]}]}`)
	const file = `{apiVersion: v1, kind: Pod, metadata: {name: static}, spec: {terminationGracePeriodSeconds: 1, containers: [{name: c, image: "` + busybox + `", command: [sleep, "1000"]}]}}`
	if err := os.WriteFile(m.dir+"/manifests/static.yaml", []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	m.wait("loud", "running", func(p *v1.Pod) bool { return p != nil && p.Status.Phase != v1.PodPending })
	code, got := m.get("/containerLogs/default/loud/c?follow=1")
	lines := strings.Split(strings.TrimSpace(got), "\n")
	for i, line := range lines {
		if want := fmt.Sprintf("line-%d-", i); !strings.HasPrefix(line, want) {
			t.Fatalf("followed log: line %d is %q, want %s...", i, line, want)
		}
	}
	logs, err := filepath.Glob(m.dir + "/logs/default_loud_*/c/0.log*")
	if code != 200 || len(lines) != 5000 || err != nil || len(logs) < 2 || len(logs) > 3 {
		t.Errorf("followed log: got %d with %d lines of files %v, want 5000 lines and two or three files", code, len(lines), logs)
	}
	p := m.wait("full", "evicted", func(p *v1.Pod) bool { return p.Status.Phase == v1.PodFailed })
	trace.Proves(t, "EMPTY-K03")
	if p.Status.Reason != "Evicted" || p.Status.Message != `Usage of EmptyDir volume "e" exceeds the limit "1Mi". ` {
		t.Errorf("pod with a full volume: got %s %q", p.Status.Reason, p.Status.Message)
	}
	trace.Proves(t, "EMPTY-002")
	if _, got := m.get("/containerLogs/default/full/c"); !strings.HasPrefix(got, "2048+0 records in") {
		t.Errorf("the volume at first: got %q, want it empty", got)
	}
	m.ready("static-n1")
	if code, _ := m.get("/containerLogs/default/static-n1/c"); code != 200 {
		t.Errorf("log of the static pod: got %d", code)
	}
	if err := os.Remove(m.dir + "/manifests/static.yaml"); err != nil {
		t.Fatal(err)
	}
	m.wait("static-n1", "gone", func(p *v1.Pod) bool { return p == nil })
}

func e2eAdopt(t *testing.T, m *machine) {
	stays := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "stays"}, Data: map[string]string{"k": "two"}}
	if _, err := client.For(m.api, core.ConfigMaps).Create(t.Context(), stays); err != nil {
		t.Fatal(err)
	}
	apitest.CreatePod(t, m.api, "stays", `{terminationGracePeriodSeconds: 1, volumes: [{name: cm, configMap: {name: stays}}],
		containers: [{name: c, image: `+busybox+`, command: [sleep, "1000"], volumeMounts: [{name: cm, mountPath: /cm}]}]}`)
	before := m.ready("stays").Status.ContainerStatuses[0]
	apitest.CreatePod(t, m.api, "orphan", `{terminationGracePeriodSeconds: 1, containers: [{name: c, image: `+busybox+`, command: [sleep, "1000"]}]}`)
	orphan := m.ready("orphan")
	m.end()
	apitest.DeletePod(t, m.api, "orphan", 0)
	nodes := client.For(m.api, core.Nodes)
	node, err := nodes.Get(t.Context(), "", "n1")
	if err != nil {
		t.Fatal(err)
	}
	boot := node.Status.NodeInfo.BootID
	node = node.DeepCopy()
	node.Status.NodeInfo.BootID = "the one before"
	if _, err := nodes.UpdateStatus(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	m.api.TakeEvents()
	m.start()
	<-m.agent.Running()
	var told []string
	m.eventually("the event of the reboot", func() bool {
		told = append(told, m.api.TakeEvents()...)
		return slices.Contains(told, "n1 Warning Rebooted: Node n1 has been rebooted, boot id: "+boot)
	})
	m.eventually("the orphan to go", func() bool {
		list, err := m.cri.Runtime.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{"io.kubernetes.pod.uid": string(orphan.UID)}}})
		return err == nil && len(list.Items) == 0
	})
	m.eventually("its files to go", func() bool {
		_, err := os.Stat(m.dir + "/kubelet/pods/" + string(orphan.UID))
		_, logErr := os.Stat(m.dir + "/logs/default_orphan_" + string(orphan.UID))
		return err != nil && logErr != nil
	})
	after := m.ready("stays").Status.ContainerStatuses[0]
	if after.ContainerID != before.ContainerID || after.RestartCount != 0 {
		t.Errorf("container after a restart of the agent: got %+v, want %+v", after, before)
	}
	if got := m.exec("stays", "cat", "/cm/k"); got != "two" {
		t.Errorf("volume after a restart of the agent: got %q", got)
	}
	apitest.DeletePod(t, m.api, "stays", 1)
	m.wait("stays", "gone", func(p *v1.Pod) bool { return p == nil })
}

// e2eMany measures how long pods take that are created together.
func e2eMany(t *testing.T, m *machine) {
	var names []string
	for i := range 20 {
		names = append(names, fmt.Sprintf("many-%d", i))
	}
	began := time.Now()
	for _, name := range names {
		apitest.CreatePod(t, m.api, name, `{terminationGracePeriodSeconds: 0, containers: [{name: c, image: `+busybox+`, command: [sh, -c, "trap exit TERM; sleep 1000 & wait"]}]}`)
	}
	var took []time.Duration
	left := slices.Clone(names)
	m.wait(names[0], "running with all others", func(*v1.Pod) bool {
		left = slices.DeleteFunc(left, func(name string) bool {
			if p := apitest.GetPod(t, m.api, name); p.Status.Phase != v1.PodRunning {
				return false
			}
			took = append(took, time.Since(began))
			return true
		})
		return len(left) == 0
	})
	t.Logf("created to running: first %s, p50 %s, last %s", took[0], took[len(took)/2], took[len(took)-1])
	began = time.Now()
	for _, name := range names {
		apitest.DeletePod(t, m.api, name, 2)
	}
	for _, name := range names {
		m.wait(name, "gone", func(p *v1.Pod) bool { return p == nil })
	}
	t.Logf("all deleted in %s", time.Since(began))
}

// e2eAnew deletes a pod and makes the same once more. Both its containers tell the node that
// they were asked to end.
func e2eAnew(t *testing.T, m *machine) {
	told := m.dir + "/told"
	one := func(name string) string {
		return `{name: ` + name + `, image: ` + busybox + `, command: [sh, -c, "trap 'echo TERM >/told/` + name + `; exit' TERM; touch /tmp/up; sleep 1000 & wait"],
			readinessProbe: {exec: {command: [ls, /tmp/up]}, periodSeconds: 1}, volumeMounts: [{name: told, mountPath: /told}, {name: e, mountPath: /e}, {name: e, mountPath: /tmp, subPath: ` + name + `}]}`
	}
	spec := `{volumes: [{name: e, emptyDir: {}}, {name: told, hostPath: {path: "` + told + `", type: DirectoryOrCreate}}], containers: [` + one("a") + `, ` + one("b") + `]}`
	apitest.CreatePod(t, m.api, "again", spec)
	first := m.ready("again")
	m.exec("again", "touch", "/e/file")
	apitest.DeletePod(t, m.api, "again", 30)
	trace.Proves(t, "POD-030")
	m.wait("again", "gone", func(p *v1.Pod) bool { return p == nil })
	trace.Proves(t, "POD-028", "POD-035", "POD-037")
	for _, name := range []string{"a", "b"} {
		if got := readFile(told + "/" + name); got != "TERM" {
			t.Errorf("%s: got %q, want it to have had the signal TERM", name, got)
		}
	}
	apitest.CreatePod(t, m.api, "again", spec)
	second := m.ready("again")
	trace.Proves(t, "POD-013", "EMPTY-005")
	if got := m.exec("again", "ls", "/e"); got != "a\nb\n" || second.UID == first.UID {
		t.Errorf("the volume of a pod made anew: got %q, want it without what the first one wrote", got)
	}
	apitest.DeletePod(t, m.api, "again", 30)
	m.wait("again", "gone", func(p *v1.Pod) bool { return p == nil })
}

func e2eGone(t *testing.T, m *machine) {
	apitest.CreatePod(t, m.api, "last", `{terminationGracePeriodSeconds: 0, volumes: [{name: e, emptyDir: {}}], containers: [{name: c, image: `+busybox+`, command: [sleep, "1000"], volumeMounts: [{name: e, mountPath: /e}]}]}`)
	last := m.ready("last")
	if _, err := os.Stat(m.dir + "/kubelet/pods/" + string(last.UID) + "/volumes/kubernetes.io~empty-dir/e"); err != nil {
		t.Errorf("volume of a pod that runs: %v", err)
	}
	for _, name := range []string{"web", "vols", "limited", "sizes", "whole", "msg", "crash", "oom", "noimage", "novolume", "probed", "hookless", "init", "sec", "root", "full", "loud", "last"} {
		if apitest.GetPod(t, m.api, name) != nil {
			apitest.DeletePod(t, m.api, name, 2)
		}
	}
	for _, name := range []string{"web", "vols", "limited", "sizes", "whole", "msg", "crash", "oom", "noimage", "novolume", "probed", "hookless", "init", "sec", "root", "full", "loud", "last"} {
		m.wait(name, "gone", func(p *v1.Pod) bool { return p == nil })
	}
	m.eventually("sandboxes to go", func() bool {
		list, err := m.cri.Runtime.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{})
		return err == nil && len(list.Items) == 0
	})
	trace.Proves(t, "EMPTY-001", "VOL-004", "VOL-006")
	// The objects of pods that earlier tests deleted without a grace period went before what they held.
	for _, dir := range []string{"/kubelet/pods", "/logs"} {
		m.eventually(dir+" to be empty", func() bool {
			left, err := os.ReadDir(m.dir + dir)
			return err == nil && len(left) == 0
		})
	}
	for _, class := range []string{"", "/burstable", "/besteffort"} {
		for _, name := range groups().Children("/" + filepath.Base(m.dir) + "/kubepods" + class) {
			if strings.HasPrefix(name, "pod") {
				t.Errorf("cgroup left: %s/%s", class, name)
			}
		}
	}
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(m.dir + "/kubelet"))
	mounts = slices.DeleteFunc(mounts, func(at *mountinfo.Info) bool { return at.Mountpoint == m.dir+"/kubelet" }) // one that shares what is mounted below
	if err != nil || len(mounts) > 0 {
		t.Errorf("mounts left: %v, %v", mounts, err)
	}
}
