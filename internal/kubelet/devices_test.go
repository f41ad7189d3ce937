package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	podapi "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/kubelet/pkg/apis/podresources/v1alpha1"
	podsapi "k8s.io/kubelet/pkg/apis/pods/v1alpha1"
	"sigs.k8s.io/yaml"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/dra"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/kubelet/fakecri"
	"github.com/kemudi/kemudi/internal/kubelet/fakeplugin"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/test/wait"
)

const testGPU = "example.com/gpu"

// deviceNode is a simulated node with sockets for plugins, which live in real time.
type deviceNode struct {
	t    *testing.T
	api  *memAPI
	cri  *fakecri.Runtime
	root string
	end  func()
	mu   struct {
		sync.Mutex
		made map[string][]*runtimeapi.ContainerConfig // by the names of pods
	}
}

func newDeviceNode(t *testing.T) *deviceNode {
	t.Helper()
	root, err := os.MkdirTemp("", "node") // shorter than the test's name, as the path of a socket must be
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	n := &deviceNode{t: t, api: newMemAPI(t), root: root}
	n.mu.made = map[string][]*runtimeapi.ContainerConfig{}
	n.cri = fakecri.New(fakecri.Options{Create: func(c *runtimeapi.ContainerConfig) error {
		n.mu.Lock()
		defer n.mu.Unlock()
		pod := c.Labels["io.kubernetes.pod.name"]
		n.mu.made[pod] = append(n.mu.made[pod], c)
		return nil
	}})
	n.run()
	return n
}

// run starts an agent, which is a new one each time.
func (n *deviceNode) run() {
	n.t.Helper()
	n.runWith(Options{
		NodeName: "n1", Transport: n.api, Runtime: n.cri, Images: n.cri, Events: n.api, Simulated: true,
		Capacity: v1.ResourceList{v1.ResourceCPU: resource.MustParse("4"), v1.ResourceMemory: resource.MustParse("8Gi")},
		Log:      slog.New(slog.NewTextHandler(io.Discard, nil)), fake: fakes{plugins: n.root},
	})
}

func (n *deviceNode) runWith(o Options) {
	n.t.Helper()
	a, err := New(o)
	if err != nil {
		n.t.Fatal(err)
	}
	g := task.NewGroup(n.t.Context())
	g.Go("agent", a.Run)
	n.end = sync.OnceFunc(func() {
		g.Cancel(context.Canceled)
		if err := g.Wait(); err != nil {
			n.t.Errorf("Run: %v", err)
		}
	})
	n.t.Cleanup(n.end)
}

// plugin runs a device plugin that is registered.
func (n *deviceNode) plugin(devices ...string) *fakeplugin.Devices {
	n.t.Helper()
	f := fakeplugin.NewDevices(n.t, filepath.Join(n.root, "device-plugins"), testGPU, devices...)
	wait.Until(n.t, func() error {
		_, err := os.Stat(filepath.Join(f.Dir, "kubelet.sock"))
		return err
	})
	f.Serve()
	if err := f.Register(); err != nil {
		n.t.Fatal(err)
	}
	return f
}

// until waits until the pod is as it should be.
func (n *deviceNode) until(name string, is func(*v1.Pod) error) {
	n.t.Helper()
	wait.Until(n.t, func() error {
		p := getPod(n.t, n.api, name)
		if p == nil {
			return errors.New("it is not there")
		}
		return is(p)
	})
}

func running(p *v1.Pod) error {
	if p.Status.Phase != v1.PodRunning || !core.PodReady(p) {
		return fmt.Errorf("status: %+v, want it running", p.Status)
	}
	return nil
}

func gone(n *deviceNode, name string) {
	n.t.Helper()
	wait.Until(n.t, func() error {
		if getPod(n.t, n.api, name) != nil {
			return errors.New("it is still there")
		}
		return nil
	})
}

// offers waits until the node says that it has so many devices, and so many for pods.
func (n *deviceNode) offers(capacity, allocatable string) {
	n.t.Helper()
	wait.Until(n.t, func() error {
		node, err := client.For(n.api, core.Nodes).Get(n.t.Context(), "", "n1")
		if err != nil {
			return err
		}
		c, a := node.Status.Capacity[testGPU], node.Status.Allocatable[testGPU]
		if c.String() != capacity || a.String() != allocatable {
			return fmt.Errorf("capacity %s, allocatable %s, want %s and %s", c.String(), a.String(), capacity, allocatable)
		}
		return nil
	})
}

// config is that of the newest container of a pod.
func (n *deviceNode) config(pod string) *runtimeapi.ContainerConfig {
	n.t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	list := n.mu.made[pod]
	if len(list) == 0 {
		n.t.Fatalf("no container of %s was made", pod)
	}
	return list[len(list)-1]
}

func env(c *runtimeapi.ContainerConfig, key string) string {
	for _, kv := range c.Envs {
		if kv.Key == key {
			return string(kv.Value)
		}
	}
	return ""
}

// podsAPI asks the node about its pods, as programs on it do.
func (n *deviceNode) podsAPI() podsapi.PodsClient {
	n.t.Helper()
	conn, err := grpc.NewClient("unix:"+filepath.Join(n.root, "pods-api", "pods-api.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { conn.Close() })
	return podsapi.NewPodsClient(conn)
}

func TestProgramsOnTheNodeAreToldOfItsPods(t *testing.T) {
	n := newDeviceNode(t)
	createPod(t, n.api, "p", `{containers: [{name: c, image: x}]}`)
	n.until("p", running)
	c := n.podsAPI()
	decode := func(data []byte) *v1.Pod {
		t.Helper()
		p := &v1.Pod{}
		if err := p.Unmarshal(data); err != nil {
			t.Fatal(err)
		}
		return p
	}
	list, err := c.ListPods(t.Context(), &podsapi.ListPodsRequest{}, grpc.WaitForReady(true))
	if err != nil || len(list.Pods) != 1 || decode(list.Pods[0]).Status.Phase != v1.PodRunning {
		t.Fatalf("list: got %v, %v, want the pod, running", list, err)
	}
	uid := decode(list.Pods[0]).UID
	if one, err := c.GetPod(t.Context(), &podsapi.GetPodRequest{PodUID: string(uid)}); err != nil || decode(one.Pod).Name != "p" {
		t.Errorf("get: got %v, %v", one, err)
	}
	if _, err := c.GetPod(t.Context(), &podsapi.GetPodRequest{PodUID: "none"}); status.Code(err) != codes.NotFound {
		t.Errorf("get what is not there: got %v", err)
	}
	w, err := c.WatchPods(t.Context(), &podsapi.WatchPodsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	// next is the next event that is of a kind, and of a pod as it is to be.
	next := func(kind podsapi.EventType, is func(*v1.Pod) bool) {
		t.Helper()
		for {
			e, err := w.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if e.Type == kind && (is == nil || is(decode(e.Pod))) {
				return
			}
		}
	}
	named := func(name string) func(*v1.Pod) bool { return func(p *v1.Pod) bool { return p.Name == name } }
	next(podsapi.EventType_ADDED, named("p"))
	next(podsapi.EventType_INITIAL_SYNC_COMPLETE, nil)
	createPod(t, n.api, "q", `{containers: [{name: c, image: x}]}`)
	next(podsapi.EventType_ADDED, named("q"))
	next(podsapi.EventType_MODIFIED, func(p *v1.Pod) bool { return p.Name == "q" && core.PodReady(p) })
	n.until("q", running)
	deletePod(t, n.api, "q", 1)
	next(podsapi.EventType_DELETED, named("q"))
	n.api.BreakWith(errors.New("connection refused")) // the node knows all the same
	n.cri.Exit("default/p", "c", 1, "")
	next(podsapi.EventType_MODIFIED, func(p *v1.Pod) bool { return p.Status.ContainerStatuses[0].LastTerminationState.Terminated != nil })
	n.api.BreakWith(nil)
}

const wantsGPU = `{containers: [{name: c, image: x, command: ["run", "$(DEVICES)"], resources: {limits: {example.com/gpu: 1}}}]}`

func TestPodGetsDevicesOfAPlugin(t *testing.T) {
	n := newDeviceNode(t)
	f := n.plugin("a", "b")
	n.offers("2", "2")
	createPod(t, n.api, "p", wantsGPU)
	n.until("p", running)
	c := n.config("p")
	if env(c, "DEVICES") != "a" || len(c.Devices) != 1 || c.Devices[0].ContainerPath != "/dev/a" || len(c.CDIDevices) != 1 || c.CDIDevices[0].Name != "example.com/gpu=a" || c.Annotations["example.com/device"] != "a" || c.Command[1] != "a" {
		t.Errorf("the container was made with %v", c)
	}
	health := func(want v1.ResourceHealthStatus) func(*v1.Pod) error {
		return func(p *v1.Pod) error {
			s := p.Status.ContainerStatuses[0].AllocatedResourcesStatus
			if len(s) != 1 || s[0].Name != testGPU || len(s[0].Resources) != 1 || s[0].Resources[0].ResourceID != "a" || s[0].Resources[0].Health != want {
				return fmt.Errorf("status of its resources: %+v, want %s", s, want)
			}
			return nil
		}
	}
	n.until("p", health(v1.ResourceHealthStatusHealthy))
	f.Set("a", pluginapi.Unhealthy)
	n.until("p", health(v1.ResourceHealthStatusUnhealthy))
	n.offers("2", "1")
	if err := running(getPod(t, n.api, "p")); err != nil {
		t.Errorf("a pod whose device is not well: %v", err)
	}

	createPod(t, n.api, "many", strings.Replace(wantsGPU, "gpu: 1", "gpu: 2", 1))
	n.until("many", func(p *v1.Pod) error {
		const want = "Pod was rejected: Allocate failed due to requested number of devices unavailable for example.com/gpu. Requested: 2, Available: 1, which is unexpected"
		if p.Status.Phase != v1.PodFailed || p.Status.Reason != "UnexpectedAdmissionError" || p.Status.Message != want {
			return fmt.Errorf("status: %+v, want it failed: %s", p.Status, want)
		}
		return nil
	})
	f.Refuse(errors.New("it is on fire"))
	createPod(t, n.api, "refused", wantsGPU)
	n.until("refused", func(p *v1.Pod) error {
		const want = "Pod was rejected: Allocate failed due to rpc error: code = Unknown desc = it is on fire, which is unexpected"
		if p.Status.Reason != "UnexpectedAdmissionError" || p.Status.Message != want {
			return fmt.Errorf("status: %+v, want it failed: %s", p.Status, want)
		}
		return nil
	})
	if events := strings.Join(n.api.TakeEvents(), "\n"); !strings.Contains(events, "refused Warning UnexpectedAdmissionError: Allocate failed due to rpc error") {
		t.Errorf("events: %s", events)
	}
}

func TestPodThatEndsGivesItsDevicesBack(t *testing.T) {
	n := newDeviceNode(t)
	f := n.plugin("a")
	n.offers("1", "1")
	createPod(t, n.api, "p", wantsGPU)
	n.until("p", running)
	f.Set("a", "")
	n.offers("0", "0")
	f.Set("a", pluginapi.Healthy)
	n.offers("1", "1")
	deletePod(t, n.api, "p", 1)
	gone(n, "p")
	createPod(t, n.api, "q", wantsGPU)
	n.until("q", running)
	deaf := make(chan struct{})
	defer close(deaf)
	deletePod(t, n.api, "q", 1)
	gone(n, "q")
	f.Deafen(deaf)
	f.Calls()
	createPod(t, n.api, "r", wantsGPU)
	wait.Until(t, func() error {
		if calls := f.Calls(); len(calls) == 0 {
			return errors.New("the plugin has not been asked")
		}
		return nil
	})
	createPod(t, n.api, "other", `{containers: [{name: c, image: x}]}`) // V3
	n.until("other", running)
	deletePod(t, n.api, "r", 1) // it is not waited for
	gone(n, "r")
}

func TestDevicesOutliveTheAgent(t *testing.T) {
	n := newDeviceNode(t)
	n.plugin("a", "b")
	n.offers("2", "2")
	createPod(t, n.api, "first", wantsGPU)
	n.until("first", running)
	createPod(t, n.api, "p", wantsGPU)
	n.until("p", running)
	n.end()
	deletePod(t, n.api, "first", 0) // while no agent is there
	n.run()
	n.offers("0", "0") // its socket is gone: that tells it to register
	if err := running(getPod(t, n.api, "p")); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(n.root, "device-plugins", "example.com_gpu.sock")); err != nil {
		t.Fatal(err)
	}
	f := n.plugin("a", "b")
	n.offers("2", "2")
	n.until("p", func(p *v1.Pod) error {
		if s := p.Status.ContainerStatuses[0].AllocatedResourcesStatus; len(s) != 1 || s[0].Resources[0].ResourceID != "b" || p.Status.ContainerStatuses[0].RestartCount != 0 {
			return fmt.Errorf("status: %+v", p.Status.ContainerStatuses[0])
		}
		return nil
	})
	createPod(t, n.api, "q", wantsGPU)
	n.until("q", running)
	if got := env(n.config("q"), "DEVICES"); got != "a" {
		t.Errorf("a pod beside it has %q, want what the first has given back", got)
	}
	if calls := f.Calls(); len(calls) != 1 {
		t.Errorf("the plugin was asked %q, want it asked for the new pod alone", calls)
	}
}

// listed asks the node which pods have which devices, as monitors do.
func (n *deviceNode) listed() string {
	n.t.Helper()
	conn, err := grpc.NewClient("unix:"+filepath.Join(n.root, "pod-resources", "kubelet.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		n.t.Fatal(err)
	}
	defer conn.Close()
	c := podapi.NewPodResourcesListerClient(conn)
	list, err := c.List(n.t.Context(), &podapi.ListPodResourcesRequest{}, grpc.WaitForReady(true))
	if err != nil {
		n.t.Fatal(err)
	}
	var out strings.Builder
	for _, p := range list.PodResources {
		for _, one := range p.Containers {
			fmt.Fprintf(&out, "%s/%s/%s:", p.Namespace, p.Name, one.Name)
			for _, d := range one.Devices {
				fmt.Fprintf(&out, " %s=%v", d.ResourceName, d.DeviceIds)
			}
			for _, d := range one.DynamicResources {
				fmt.Fprintf(&out, " %s/%s", d.ClaimNamespace, d.ClaimName)
				for _, r := range d.ClaimResources {
					fmt.Fprintf(&out, " %s/%s/%s=%s", r.DriverName, r.PoolName, r.DeviceName, r.CdiDevices[0].Name)
				}
			}
			out.WriteString("\n")
		}
		got, err := c.Get(n.t.Context(), &podapi.GetPodResourcesRequest{PodName: p.Name, PodNamespace: p.Namespace})
		if err != nil || got.PodResources.String() != p.String() {
			n.t.Errorf("asked for one: got %v, %v, want %v", got, err, p)
		}
	}
	if _, err := c.Get(n.t.Context(), &podapi.GetPodResourcesRequest{PodName: "none", PodNamespace: "default"}); err == nil || !strings.Contains(err.Error(), "pod none in namespace default not found") {
		n.t.Errorf("asked for a pod that there is not: got %v", err)
	}
	all, err := c.GetAllocatableResources(n.t.Context(), &podapi.AllocatableResourcesRequest{})
	if err != nil {
		n.t.Fatal(err)
	}
	for _, d := range all.Devices {
		fmt.Fprintf(&out, "%s=%v\n", d.ResourceName, d.DeviceIds)
	}
	return out.String()
}

func TestMonitorsAreToldWhoHasWhichDevices(t *testing.T) {
	n := newDeviceNode(t)
	if got := n.listed(); got != "" {
		t.Errorf("a node without pods: got %s", got)
	}
	n.plugin("a", "b")
	n.offers("2", "2")
	createPod(t, n.api, "p", `{initContainers: [{name: i, image: x, command: [sh, -c, "exit 0"], resources: {limits: {example.com/gpu: 2}}}, {name: s, image: x, restartPolicy: Always, resources: {limits: {example.com/gpu: 1}}}],
		containers: [{name: c, image: x, resources: {limits: {example.com/gpu: 1}}}, {name: d, image: x}]}`)
	n.until("p", running)
	const want = "default/p/s: example.com/gpu=[a]\ndefault/p/c: example.com/gpu=[b]\ndefault/p/d:\nexample.com/gpu=[a]\nexample.com/gpu=[b]\n"
	if got := n.listed(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	conn, err := grpc.NewClient("unix:"+filepath.Join(n.root, "pod-resources", "kubelet.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	older, err := v1alpha1.NewPodResourcesListerClient(conn).List(t.Context(), &v1alpha1.ListPodResourcesRequest{})
	if err != nil || len(older.PodResources) != 1 {
		t.Fatalf("a monitor that speaks v1alpha1: got %v, %v, want one pod", older, err)
	}
	p := older.PodResources[0]
	if len(p.Containers) != 2 || p.Name != "p" || p.Namespace != "default" || p.Containers[0].Name != "c" || p.Containers[1].Name != "d" || len(p.Containers[1].Devices) != 0 {
		t.Fatalf("a monitor that speaks v1alpha1: got %v, want containers c and d of default/p", p)
	}
	if d := p.Containers[0].Devices; len(d) != 1 || d[0].ResourceName != testGPU || fmt.Sprint(d[0].DeviceIds) != "[b]" {
		t.Errorf("a monitor that speaks v1alpha1: got %v of container c, want device b", d)
	}
}

// gpuClaim makes a claim that is allocated and reserved for a pod.
func (n *deviceNode) gpuClaim(name string, p *v1.Pod) {
	n.t.Helper()
	api := client.For(n.api, dra.ResourceClaims)
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}}
	n.parse(`{devices: {requests: [{name: one, exactly: {deviceClassName: gpu}}]}}`, &c.Spec)
	c, err := api.Create(n.t.Context(), c)
	if err != nil {
		n.t.Fatal(err)
	}
	c = c.DeepCopy()
	n.parse(`{allocation: {devices: {results: [{request: one, driver: gpu.example.com, pool: n1, device: gpu-1}]}}}`, &c.Status)
	c.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: p.Name, UID: p.UID}}
	if _, err := api.UpdateStatus(n.t.Context(), c); err != nil {
		n.t.Fatal(err)
	}
}

func (n *deviceNode) parse(text string, into any) {
	n.t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
		n.t.Fatal(err)
	}
}

const wantsClaim = `{resourceClaims: [{name: gpu, resourceClaimName: mine}], containers: [{name: c, image: x, resources: {claims: [{name: gpu}]}}, {name: d, image: x}]}`

func TestPodGetsDevicesOfItsClaims(t *testing.T) {
	n := newDeviceNode(t)
	p := createPod(t, n.api, "p", wantsClaim)
	wait.Until(t, func() error { // nobody has made it
		const want = `p Warning FailedPrepareDynamicResources: Failed to prepare dynamic resources: prepare dynamic resources: fetch ResourceClaim mine: resourceclaims.resource.k8s.io "mine" not found`
		if events := strings.Join(n.api.TakeEvents(), "\n"); !strings.Contains(events, want) {
			return fmt.Errorf("events: %s", events)
		}
		return nil
	})
	n.gpuClaim("mine", p)
	f := fakeplugin.NewDriver(t, "gpu.example.com", filepath.Join(n.root, "d.sock"))
	f.Show(t, filepath.Join(n.root, "plugins_registry"))
	n.until("p", running)
	n.mu.Lock()
	made := n.mu.made["p"]
	n.mu.Unlock()
	for _, c := range made {
		want := 0
		if c.Metadata.Name == "c" {
			want = 3
		}
		if len(c.CDIDevices) != want {
			t.Errorf("container %s was made with CDI devices %v, want %d", c.Metadata.Name, c.CDIDevices, want)
		}
	}
	n.until("p", func(p *v1.Pod) error {
		if s := p.Status.ContainerStatuses[0].AllocatedResourcesStatus; len(s) != 1 || s[0].Name != "claim:gpu" || len(s[0].Resources) != 3 || s[0].Resources[0].Health != v1.ResourceHealthStatusUnknown {
			return fmt.Errorf("status: %+v", s)
		}
		return nil
	})
	if got, want := n.listed(), "default/p/c: default/mine gpu.example.com/n1/mine-1=example.com/gpu=mine-1 gpu.example.com/n1/mine-2=example.com/gpu=mine-2 gpu.example.com/n1/all=example.com/all=mine\ndefault/p/d:\n"; got != want {
		t.Errorf("monitors are told\n%swant\n%s", got, want)
	}
	n.end()
	n.run()
	f.Calls()
	deletePod(t, n.api, "p", 1)
	gone(n, "p") // W2: after the driver is registered with the new agent
	if calls := f.Calls(); len(calls) != 1 || calls[0] != "unprepare default/mine" {
		t.Errorf("the driver was asked %q, want it to take the claim back", calls)
	}
}
