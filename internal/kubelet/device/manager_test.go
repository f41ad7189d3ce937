package device

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/kemudi/kemudi/internal/kubelet/cri"
	"github.com/kemudi/kemudi/internal/kubelet/device/checkpoint"
	"github.com/kemudi/kemudi/internal/kubelet/fakeplugin"
	"github.com/kemudi/kemudi/internal/kubelet/sequence"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/test/wait"
)

const gpu = "example.com/gpu"

// bed is a node of which there are only devices.
type bed struct {
	t   *testing.T
	dir string
	m   *Manager
	end func()
	mu  struct {
		sync.Mutex
		changes int
		pods    []types.UID
	}
}

// newBed returns one whose agent is to be started.
func newBed(t *testing.T) *bed {
	t.Helper()
	dir, err := os.MkdirTemp("", "device") // shorter than the test's name, as the path of a socket must be
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return &bed{t: t, dir: dir}
}

// start starts an agent, which tune may change before; nil: not.
func (b *bed) start(tune func(*Manager)) *bed {
	b.t.Helper()
	b.m = New(Options{
		Dir: b.dir, Registry: prometheus.NewRegistry(), Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Changed: func() { b.mu.Lock(); b.mu.changes++; b.mu.Unlock() },
		Pods:    func(uids []types.UID) { b.mu.Lock(); b.mu.pods = append(b.mu.pods, uids...); b.mu.Unlock() },
	})
	if tune != nil {
		tune(b.m)
	}
	g := task.NewGroup(b.t.Context())
	g.Go("devices", b.m.Run)
	b.end = sync.OnceFunc(func() {
		g.Cancel(context.Canceled)
		if err := g.Wait(); err != nil {
			b.t.Error(err)
		}
	})
	b.t.Cleanup(b.end)
	wait.Until(b.t, func() error { // the sockets that were there are gone then
		_, err := os.Stat(filepath.Join(b.dir, "kubelet.sock"))
		return err
	})
	return b
}

// plugin runs a plugin with these devices, and waits until the node knows them.
func (b *bed) plugin(resource string, devices ...string) *fakeplugin.Devices {
	b.t.Helper()
	f := fakeplugin.NewDevices(b.t, b.dir, resource, devices...)
	f.Serve()
	b.register(f)
	return f
}

func (b *bed) register(f *fakeplugin.Devices) {
	b.t.Helper()
	if err := f.Register(); err != nil {
		b.t.Fatal(err)
	}
	b.has(f.Resource, f.Count(), f.Count())
}

// has waits until the node has so many devices of a resource, and so many of them for pods.
func (b *bed) has(resource string, capacity, allocatable int) {
	b.t.Helper()
	wait.Until(b.t, func() error {
		all, some := b.m.Node()
		c, ok := all[v1.ResourceName(resource)]
		a := some[v1.ResourceName(resource)]
		if !ok || c.Value() != int64(capacity) || a.Value() != int64(allocatable) {
			return fmt.Errorf("%s: capacity %v, allocatable %v, want %d and %d", resource, all, some, capacity, allocatable)
		}
		return nil
	})
}

// podOf is a pod with these containers: how many devices, with a leading i for an init container, and s for a sidecar.
func podOf(name string, wants ...string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID("uid-" + name)}}
	for i, want := range wants {
		c := v1.Container{Name: fmt.Sprintf("c%d", i), Resources: v1.ResourceRequirements{Limits: v1.ResourceList{
			gpu: apiresource.MustParse(strings.TrimLeft(want, "is")), v1.ResourceCPU: apiresource.MustParse("1"), "example.com/other": apiresource.MustParse("1"),
		}}}
		switch want[0] {
		case 's':
			always := v1.ContainerRestartPolicyAlways
			c.RestartPolicy = &always
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		case 'i':
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		default:
			p.Spec.Containers = append(p.Spec.Containers, c)
		}
	}
	return p
}

// got are the devices that a container of a pod has.
func (b *bed) got(p *v1.Pod, container string) string {
	var ids []string
	for _, d := range b.m.Of(p.UID, container) {
		ids = append(ids, d.ID)
	}
	return strings.Join(ids, ",")
}

func TestPluginGivesTheNodeItsDevices(t *testing.T) {
	t.Parallel()
	b := newBed(t).start(func(m *Manager) { m.waits.absence = 50 * time.Millisecond })
	f := fakeplugin.NewDevices(t, b.dir, gpu, "a", "b", "c")
	stop := f.Serve()
	b.register(f)
	f.Set("b", pluginapi.Unhealthy)
	b.has(gpu, 3, 2)
	f.Set("b", "")
	b.has(gpu, 2, 2)
	wait.Until(t, func() error {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.mu.changes < 3 {
			return fmt.Errorf("the node was told of %d changes, want one for each list", b.mu.changes)
		}
		return nil
	})
	stop() // it dies
	b.has(gpu, 0, 0)
	if b.m.Manages(gpu) {
		t.Error("the resource of a plugin that stays away is still known")
	}
}

func TestDevicesOfAPluginThatIsAwayStayForAWhile(t *testing.T) {
	t.Parallel()
	b := newBed(t).start(nil)
	f := fakeplugin.NewDevices(t, b.dir, gpu, "a", "b")
	stop := f.Serve()
	b.register(f)
	p := podOf("p", "1")
	if err := allocate(t, b.m, p); err != nil {
		t.Fatal(err)
	}
	stop()
	b.has(gpu, 2, 0)
	if err := allocate(t, b.m, podOf("q", "1")); err == nil || err.Error() != "no healthy devices present; cannot allocate unhealthy devices example.com/gpu" {
		t.Errorf("a device of a plugin that is away: got %v", err)
	}
	if h := b.m.Health(p.UID)["c0"]; len(h) != 1 || h[0].Resources[0].Health != v1.ResourceHealthStatusUnhealthy {
		t.Errorf("health of a device of a plugin that is away: got %v, want that it is not well", h)
	}
	again := fakeplugin.NewDevices(t, b.dir, gpu, "a", "b")
	again.Serve()
	b.register(again)
	if b.got(p, "c0") != "a" {
		t.Errorf("after the plugin was away the container has %q, want a", b.got(p, "c0"))
	}
	if err := allocate(t, b.m, podOf("q", "1")); err != nil {
		t.Error(err)
	}
}

func TestPluginThatTakesTheResourceOfAnotherReplacesIt(t *testing.T) {
	t.Parallel()
	b := newBed(t).start(nil)
	b.plugin(gpu, "a")
	other := fakeplugin.NewDevices(t, b.dir, gpu, "x", "y")
	l := filepath.Join(b.dir, "sub")
	if err := os.Mkdir(l, 0o755); err != nil {
		t.Fatal(err)
	}
	other.Dir = l
	other.Serve()
	if err := fakeplugin.Register(t, b.dir, pluginapi.Version, "sub/"+other.Endpoint(), gpu); err != nil {
		t.Fatal(err)
	}
	b.has(gpu, 2, 2)
}

func TestStrangePluginsAreRefused(t *testing.T) {
	t.Parallel()
	b := newBed(t).start(func(m *Manager) { m.waits.connect = 50 * time.Millisecond })
	for name, c := range map[string]struct{ version, endpoint, resource, want string }{
		"a version of tomorrow":     {"v2", "x.sock", gpu, `requested API version "v2" is not supported by kubelet. Supported version is ["v1beta1"]`},
		"no version":                {"", "x.sock", gpu, `requested API version "" is not supported by kubelet. Supported version is ["v1beta1"]`},
		"a resource of the node":    {"v1beta1", "x.sock", "cpu", `the ResourceName "cpu" is invalid`},
		"a resource of Kubernetes":  {"v1beta1", "x.sock", "kubernetes.io/gpu", `the ResourceName "kubernetes.io/gpu" is invalid`},
		"no domain":                 {"v1beta1", "x.sock", "gpu", `the ResourceName "gpu" is invalid`},
		"a path as a resource":      {"v1beta1", "x.sock", "example.com/../../x", `the ResourceName "example.com/../../x" is invalid`},
		"a quota":                   {"v1beta1", "x.sock", "requests.example.com/gpu", `the ResourceName "requests.example.com/gpu" is invalid`},
		"no resource":               {"v1beta1", "x.sock", "", `the ResourceName "" is invalid`},
		"a socket elsewhere":        {"v1beta1", "../x.sock", gpu, `the endpoint "../x.sock" is not in the directory of device plugins`},
		"a socket at an own path":   {"v1beta1", "/run/x.sock", gpu, `the endpoint "/run/x.sock" is not in the directory of device plugins`},
		"no socket":                 {"v1beta1", "", gpu, `the endpoint "" is not in the directory of device plugins`},
		"a socket that nobody made": {"v1beta1", "none.sock", gpu, "failed to get device plugin options"},
	} {
		err := fakeplugin.Register(t, b.dir, c.version, c.endpoint, c.resource)
		if err == nil || !strings.Contains(status.Convert(err).Message(), c.want) {
			t.Errorf("%s: got %v, want it refused: %s", name, err, c.want)
		}
	}
	if all, _ := b.m.Node(); len(all) != 0 {
		t.Errorf("the node has %v of them", all)
	}
}

func TestContainerStartsWithWhatItsPluginAnswers(t *testing.T) {
	t.Parallel()
	b := newBed(t).start(nil)
	f := fakeplugin.NewDevices(t, b.dir, gpu, "a", "b", "c")
	f.Options = &pluginapi.DevicePluginOptions{PreStartRequired: true, GetPreferredAllocationAvailable: true}
	f.Prefer, f.Library = []string{"c", "b"}, "/opt/device"
	f.Serve()
	b.register(f)
	p := podOf("p", "2")
	if !b.m.Wants(p) {
		t.Fatal("the pod wants no devices")
	}
	if err := allocate(t, b.m, p); err != nil {
		t.Fatal(err)
	}
	if b.m.Wants(p) {
		t.Error("the pod wants devices though it has them")
	}
	d, err := b.m.For(t.Context(), p, &p.Spec.Containers[0])
	if err != nil {
		t.Fatal(err)
	}
	var text []string
	for _, e := range d.Envs {
		text = append(text, e.Key+"="+string(e.Value))
	}
	for _, n := range d.Nodes {
		text = append(text, n.HostPath+" as "+n.ContainerPath+" "+n.Permissions)
	}
	for _, m := range d.Mounts {
		text = append(text, fmt.Sprintf("%s at %s %t", m.HostPath, m.ContainerPath, m.Readonly))
	}
	for _, c := range d.CDI {
		text = append(text, c.Name)
	}
	want := []string{"DEVICES=b,c", "/dev/null as /dev/b rw", "/dev/null as /dev/c rw", "/opt/device at /usr/lib/device true", "example.com/gpu=b", "example.com/gpu=c"}
	if !slices.Equal(text, want) || d.Annotations["example.com/device"] != "b" {
		t.Errorf("the container starts with %q and %v, want %q", text, d.Annotations, want)
	}
	if got, want := f.Calls(), []string{"prefer 2 of [a b c] with []", "allocate [b c]", "start [b c]"}; !slices.Equal(got, want) {
		t.Errorf("the plugin was asked %q, want %q", got, want)
	}
	if _, err := b.m.For(t.Context(), p, &p.Spec.Containers[0]); err != nil { // it is started again
		t.Fatal(err)
	}
	if got, want := f.Calls(), []string{"start [b c]"}; !slices.Equal(got, want) {
		t.Errorf("at the second start the plugin was asked %q, want %q", got, want)
	}
	none := podOf("none", "0")
	if d, err := b.m.For(t.Context(), none, &none.Spec.Containers[0]); b.m.Wants(none) || d != nil || err != nil {
		t.Errorf("a pod without devices: wants %t, starts with %v, %v", b.m.Wants(none), d, err)
	}
}

func TestInitContainersHandTheirDevicesOn(t *testing.T) {
	t.Parallel()
	b := newBed(t).start(nil)
	b.plugin(gpu, "a", "b", "c")
	p := podOf("p", "i2", "s1", "i1", "2")
	if err := allocate(t, b.m, p); err != nil {
		t.Fatal(err)
	}
	// c0 has a and b; c1, which goes on running, takes a over for good; c2 takes b, c3 takes b over from both.
	for container, want := range map[string]string{"c0": "a,b", "c1": "a", "c2": "b", "c3": "b,c"} {
		if got := b.got(p, container); got != want {
			t.Errorf("%s has %q, want %q", container, got, want)
		}
	}
	if err := allocate(t, b.m, podOf("q", "1")); err == nil || err.Error() != "requested number of devices unavailable for example.com/gpu. Requested: 1, Available: 0" {
		t.Errorf("a pod for which nothing is left: got %v", err)
	}
	b.m.Release(p.UID)
	if err := allocate(t, b.m, podOf("q", "3")); err != nil {
		t.Errorf("after they were given back: %v", err)
	}
}

func TestPodGetsAllDevicesOrNone(t *testing.T) {
	t.Parallel()
	b := newBed(t).start(nil)
	f := b.plugin(gpu, "a", "b")
	p := podOf("p", "1", "2")
	if err := allocate(t, b.m, p); err == nil {
		t.Fatal("three of two devices were given")
	}
	f.Refuse(status.Error(codes.Internal, "it is on fire"))
	if err := allocate(t, b.m, podOf("q", "2")); err == nil || err.Error() != "rpc error: code = Internal desc = it is on fire" {
		t.Errorf("a plugin that refuses: got %v", err)
	}
	f.Refuse(nil)
	if err := allocate(t, b.m, podOf("r", "2")); err != nil {
		t.Errorf("what others did not get in the end is not free: %v", err)
	}
}

func TestDeafPluginHoldsUpOnlyItsOwn(t *testing.T) { // V3
	t.Parallel()
	b := newBed(t).start(func(m *Manager) { m.waits.allocate = 500 * time.Millisecond })
	f := b.plugin(gpu, "a", "b")
	f.Deafen(make(chan struct{}))
	b.plugin("example.com/other", "x", "y")
	done := make(chan error)
	go func() { done <- allocate(t, b.m, podOf("p", "1")) }()
	quick := podOf("q", "0")
	if err := allocate(t, b.m, quick); err != nil || b.got(quick, "c0") == "" {
		t.Errorf("a pod with devices of another plugin: has %q, %v", b.got(quick, "c0"), err)
	}
	if err := <-done; status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("a plugin that does not answer: got %v, want that it is given up", err)
	}
	f.Deafen(nil)
	if err := allocate(t, b.m, podOf("r", "2")); err != nil {
		t.Errorf("what was not given in the end is not free: %v", err)
	}
}

func TestPodsAtOnceGetDifferentDevices(t *testing.T) { // V1
	t.Parallel()
	b := newBed(t).start(nil)
	var ids []string
	for i := range 20 {
		ids = append(ids, fmt.Sprintf("d%02d", i))
	}
	b.plugin(gpu, ids...)
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Go(func() {
			if err := allocate(t, b.m, podOf(fmt.Sprint(i), "2")); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	var all []string
	for i := range 10 {
		all = append(all, strings.Split(b.got(podOf(fmt.Sprint(i)), "c0"), ",")...)
	}
	if slices.Sort(all); !slices.Equal(all, ids) {
		t.Errorf("ten pods have %v, want each device once", all)
	}
}

func TestNewAgentKnowsWhoHasWhat(t *testing.T) { // V2
	t.Parallel()
	b := newBed(t).start(nil)
	f := fakeplugin.NewDevices(t, b.dir, gpu, "a", "b", "c")
	stop := f.Serve()
	b.register(f)
	first, p := podOf("first", "1"), podOf("p", "1")
	for _, one := range []*v1.Pod{first, p} {
		if err := allocate(t, b.m, one); err != nil {
			t.Fatal(err)
		}
	}
	b.end()
	stop() // which removes its socket
	b.start(nil)
	b.has(gpu, 0, 0)
	if got := b.got(p, "c0"); got != "b" {
		t.Fatalf("after the agent was started again the container has %q, want b", got)
	}
	if _, err := b.m.For(t.Context(), p, &p.Spec.Containers[0]); err == nil || err.Error() != "cannot allocate unregistered device example.com/gpu" {
		t.Errorf("a start before the plugin is back: got %v", err)
	}
	if err := allocate(t, b.m, podOf("q", "1")); err == nil || err.Error() != "cannot allocate unregistered device example.com/gpu" {
		t.Errorf("a pod that comes before the plugin is back: got %v", err)
	}
	b.m.Keep(func(uid types.UID) bool { return uid == p.UID }) // the other is gone
	again := fakeplugin.NewDevices(t, b.dir, gpu, "a", "b", "c")
	again.Serve()
	b.register(again)
	d, err := b.m.For(t.Context(), p, &p.Spec.Containers[0])
	if err != nil || len(d.Envs) != 1 || string(d.Envs[0].Value) != "b" {
		t.Errorf("a start when the plugin is back: got %v, %v", d, err)
	}
	if calls := again.Calls(); len(calls) > 0 {
		t.Errorf("the plugin was asked %q for a container that has its devices", calls)
	}
	wait.Until(t, func() error {
		b.mu.Lock()
		defer b.mu.Unlock()
		if !slices.Contains(b.mu.pods, p.UID) {
			return errors.New("the pod was not told that the plugin is back")
		}
		return nil
	})
	q := podOf("q", "2")
	if err := allocate(t, b.m, q); err != nil || b.got(q, "c0") != "a,c" {
		t.Errorf("a pod beside it got %q, %v; want a and c", b.got(q, "c0"), err)
	}
	renamed := podOf("q", "1")
	if err := allocate(t, b.m, renamed); err == nil || err.Error() != `pod "uid-q" container "c0" changed request for resource "example.com/gpu" from 2 to 1` {
		t.Errorf("a pod that asks for another number: got %v", err)
	}
}

func TestDevicesThatAreCalledOtherwiseAreNotTheSame(t *testing.T) {
	t.Parallel()
	b := newBed(t).start(nil)
	f := fakeplugin.NewDevices(t, b.dir, gpu, "a")
	stop := f.Serve()
	b.register(f)
	p := podOf("p", "1")
	if err := allocate(t, b.m, p); err != nil {
		t.Fatal(err)
	}
	b.end()
	stop()
	b.start(nil)
	again := fakeplugin.NewDevices(t, b.dir, gpu, "z")
	again.Serve()
	b.register(again)
	if _, err := b.m.For(t.Context(), p, &p.Spec.Containers[0]); err == nil || err.Error() != "previously allocated devices are no longer healthy; cannot allocate unhealthy devices example.com/gpu" {
		t.Errorf("a start with a device that there is not any more: got %v", err)
	}
}

func TestAgentStartsWithAnyCheckpoint(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"nothing":            ``,
		"half":               `{"Data":{"PodDeviceEn`,
		"another form":       `{"version":"v7","state":[]}`,
		"a wrong sum":        `{"Data":{"PodDeviceEntries":[{"PodUID":"u","ContainerName":"c","ResourceName":"example.com/gpu","DeviceIDs":{"-1":["a"]},"AllocResp":""}],"RegisteredDevices":{}},"Checksum":1}`,
		"a list for a node":  `{"Data":{"PodDeviceEntries":[{"PodUID":"u","DeviceIDs":["a"]}]},"Checksum":1}`,
		"a sum of one's own": `{"Data":null,"Checksum":"x"}`,
		"binary":             "\x00\xff\x17",
	} {
		b := newBed(t)
		if err := os.WriteFile(filepath.Join(b.dir, checkpoint.File), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		b.start(nil)
		b.plugin(gpu, "a")
		if err := allocate(t, b.m, podOf("p", "1")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		b.end()
		d, err := checkpoint.Read(b.dir)
		if err != nil || len(d.Entries()) != 1 || !reflect.DeepEqual(d.Registered(), map[string][]string{gpu: {"a"}}) {
			t.Errorf("%s: afterwards the checkpoint is %+v, %v", name, d, err)
		}
	}
	bad := checkpoint.New([]checkpoint.PodDevicesEntry{{PodUID: "u", ContainerName: "c", ResourceName: gpu, AllocResp: []byte("\xff\xff")}}, nil)
	b := newBed(t)
	if err := bad.Write(b.dir); err != nil {
		t.Fatal(err)
	}
	b.start(nil)
	b.plugin(gpu, "a")
}

func TestPodIsToldOfTheHealthOfItsDevices(t *testing.T) {
	t.Parallel()
	b := newBed(t).start(nil)
	f := b.plugin(gpu, "a", "b")
	p := podOf("p", "1")
	if err := allocate(t, b.m, p); err != nil {
		t.Fatal(err)
	}
	want := func(health v1.ResourceHealthStatus) {
		t.Helper()
		wait.Until(t, func() error {
			h := b.m.Health(p.UID)
			if len(h["c0"]) != 1 || h["c0"][0].Name != gpu || len(h["c0"][0].Resources) != 1 || h["c0"][0].Resources[0].ResourceID != "a" || h["c0"][0].Resources[0].Health != health {
				return fmt.Errorf("health: %+v, want %s", h, health)
			}
			return nil
		})
	}
	want(v1.ResourceHealthStatusHealthy)
	f.Set("a", pluginapi.Unhealthy)
	want(v1.ResourceHealthStatusUnhealthy)
	b.has(gpu, 2, 1)
	wait.Until(t, func() error {
		b.mu.Lock()
		defer b.mu.Unlock()
		if !slices.Equal(b.mu.pods, []types.UID{p.UID}) {
			return fmt.Errorf("told were %v, want %s once", b.mu.pods, p.UID)
		}
		return nil
	})
	if _, err := b.m.For(t.Context(), p, &p.Spec.Containers[0]); err != nil {
		t.Errorf("the container cannot be started again with a device that is not well: %v", err)
	}
	f.Set("a", pluginapi.Healthy)
	want(v1.ResourceHealthStatusHealthy)
}

func TestContainerWithoutACheckpointIsGivenDevicesWhenItStarts(t *testing.T) {
	t.Parallel()
	b := newBed(t).start(nil)
	b.plugin(gpu, "a")
	p := podOf("p", "1")
	d, err := b.m.For(t.Context(), p, &p.Spec.Containers[0])
	if err != nil || d == nil || b.got(p, "c0") != "a" {
		t.Errorf("got %v, %v and device %q", d, err, b.got(p, "c0"))
	}
}

func TestNodeWithoutPluginsHasNoDevices(t *testing.T) {
	t.Parallel()
	var m *Manager
	p := podOf("p", "1")
	d, err := m.For(t.Context(), p, &p.Spec.Containers[0])
	if all, some := m.Node(); d != nil || err != nil || m.Wants(p) || m.Manages(gpu) || all != nil || some != nil || m.Health(p.UID) != nil || m.Of(p.UID, "c0") != nil || m.Allocatable() != nil {
		t.Error("a node without plugins has devices")
	}
	m.Release(p.UID)
	m.Keep(func(types.UID) bool { return false })

	b := newBed(t).start(nil)
	if err := allocate(t, b.m, p); err != nil || b.m.Wants(p) {
		t.Errorf("a resource of no plugin: %v, wants %t", err, b.m.Wants(p))
	}
	b.m.Release(p.UID)
	if _, err := os.Stat(filepath.Join(b.dir, checkpoint.File)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a pod without devices has had a file written: %v", err)
	}
}

func TestWhatSeveralPluginsAnswerIsPutTogether(t *testing.T) {
	t.Parallel()
	out := &cri.Devices{}
	one := &pluginapi.ContainerAllocateResponse{
		Envs: map[string]string{"A": "1", "B": "1"}, Annotations: map[string]string{"a": "1"},
		Devices:    []*pluginapi.DeviceSpec{{ContainerPath: "/dev/x", HostPath: "/dev/x"}},
		Mounts:     []*pluginapi.Mount{{ContainerPath: "/x", HostPath: "/x"}},
		CdiDevices: []*pluginapi.CDIDevice{{Name: "v.com/c=x"}, {Name: "v.com/c=x"}},
	}
	two := &pluginapi.ContainerAllocateResponse{
		Envs: map[string]string{"B": "2", "C": "2"}, Annotations: map[string]string{"a": "2"},
		Devices: []*pluginapi.DeviceSpec{{ContainerPath: "/dev/x", HostPath: "/dev/y"}}, Mounts: []*pluginapi.Mount{{ContainerPath: "/x", HostPath: "/y"}},
	}
	add(out, one)
	add(out, two)
	add(out, nil)
	var env []string
	for _, e := range out.Envs {
		env = append(env, e.Key+string(e.Value))
	}
	if !slices.Equal(env, []string{"A1", "B1", "C2"}) || out.Annotations["a"] != "1" || len(out.CDI) != 1 || len(out.Mounts) != 1 || out.Nodes[0].HostPath != "/dev/x" {
		t.Errorf("got %v %v %v %v %v, want what came first", env, out.Annotations, out.CDI, out.Mounts, out.Nodes)
	}
}

// allocate gives a pod the devices that it asks for, or none.
func allocate(t *testing.T, m *Manager, pod *v1.Pod) error {
	any := false
	for _, c := range sequence.Of(pod) {
		fresh, err := m.Give(t.Context(), pod, c.Container, 0)
		if err != nil {
			m.Release(pod.UID)
			return err
		}
		any = any || fresh
	}
	if !any {
		return nil
	}
	return m.Save()
}
