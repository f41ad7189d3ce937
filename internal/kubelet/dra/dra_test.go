package dra

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	drabeta "k8s.io/kubelet/pkg/apis/dra/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/kemudi/kemudi/internal/api/dra"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/kubelet/apitest"
	"github.com/kemudi/kemudi/internal/kubelet/fakeplugin"
	"github.com/kemudi/kemudi/internal/kubelet/plugin"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/test/wait"
)

const driverName = "gpu.example.com"

// bed is a node of which there are only claims.
type bed struct {
	t   *testing.T
	api *apitest.API
	dir string
	m   *Manager
	end func()
	mu  struct {
		sync.Mutex
		pods []types.UID // that were told of their devices
	}
}

func (b *bed) told(pods []types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.pods = append(b.mu.pods, pods...)
}

func newBed(t *testing.T) *bed {
	t.Helper()
	dir, err := os.MkdirTemp("", "dra") // shorter than the test's name, as the path of a socket must be
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return &bed{t: t, api: apitest.New(t), dir: dir}
}

// start starts an agent, which tune may change before; nil: not.
func (b *bed) start(tune func(*Manager)) *bed {
	b.t.Helper()
	b.m = New(Options{
		Dir: b.dir, Node: "n1", Transport: b.api, Changed: func() {}, Pods: b.told, Registry: prometheus.NewRegistry(), Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if tune != nil {
		tune(b.m)
	}
	g := task.NewGroup(b.t.Context())
	g.Go("claims", b.m.Run)
	b.end = sync.OnceFunc(func() {
		g.Cancel(context.Canceled)
		if err := g.Wait(); err != nil {
			b.t.Error(err)
		}
	})
	b.t.Cleanup(b.end)
	return b
}

func (b *bed) register(f *fakeplugin.Driver, versions ...string) error {
	return b.m.Handler().Register(b.t.Context(), plugin.Plugin{Type: plugin.DRA, Name: driverName, Endpoint: f.Socket, Socket: f.Socket, Versions: versions})
}

// driver runs a driver that is registered, with these services beside its own.
func (b *bed) driver(services ...string) *fakeplugin.Driver {
	b.t.Helper()
	f := fakeplugin.NewDriver(b.t, driverName, filepath.Join(b.dir, "d.sock"))
	if err := b.register(f, append(services, drapb.DRAPluginService)...); err != nil {
		b.t.Fatal(err)
	}
	return f
}

// pod is a pod that uses the claims, all of each by its container c0, and their requests one by c1.
func pod(name string, claims ...string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID("uid-" + name)}}
	c0, c1 := v1.Container{Name: "c0"}, v1.Container{Name: "c1"}
	for i, claim := range claims {
		called := fmt.Sprintf("r%d", i)
		p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, v1.PodResourceClaim{Name: called, ResourceClaimName: &claim})
		c0.Resources.Claims = append(c0.Resources.Claims, v1.ResourceClaim{Name: called})
		c1.Resources.Claims = append(c1.Resources.Claims, v1.ResourceClaim{Name: called, Request: "one"})
	}
	p.Spec.Containers = []v1.Container{c0, c1, {Name: "c2"}}
	return p
}

// claim makes a claim in the API that has been allocated and reserved for the pods.
func (b *bed) claim(name string, pods ...*v1.Pod) *resourcev1.ResourceClaim {
	b.t.Helper()
	api := client.For(b.api, dra.ResourceClaims)
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}}
	b.parse(`{devices: {requests: [{name: one, exactly: {deviceClassName: gpu}}, {name: two, exactly: {deviceClassName: gpu}}]}}`, &c.Spec)
	c, err := api.Create(b.t.Context(), c)
	if err != nil {
		b.t.Fatal(err)
	}
	if len(pods) == 0 {
		return c
	}
	c = c.DeepCopy()
	b.parse(`{allocation: {devices: {results: [{request: one, driver: gpu.example.com, pool: n1, device: `+name+`-1}, {request: two, driver: gpu.example.com, pool: n1, device: `+name+`-2}]}}}`, &c.Status)
	for _, p := range pods {
		c.Status.ReservedFor = append(c.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: p.Name, UID: p.UID})
	}
	if c, err = api.UpdateStatus(b.t.Context(), c); err != nil {
		b.t.Fatal(err)
	}
	return c
}

func (b *bed) parse(text string, into any) {
	b.t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
		b.t.Fatal(err)
	}
}

// gets are the CDI devices of the pod's containers.
func (b *bed) gets(p *v1.Pod) string {
	b.t.Helper()
	var out []string
	for i := range p.Spec.Containers {
		ids, err := b.m.CDI(p, &p.Spec.Containers[i])
		if err != nil {
			return err.Error()
		}
		out = append(out, strings.Join(ids, ","))
	}
	return strings.Join(out, " ")
}

func (b *bed) calls(f *fakeplugin.Driver, want ...string) {
	b.t.Helper()
	if got := f.Calls(); !slices.Equal(got, want) {
		b.t.Errorf("the driver was asked %q, want %q", got, want)
	}
}

func TestClaimsAreReadyAsLongAsPodsUseThem(t *testing.T) {
	t.Parallel()
	b := newBed(t).start(nil)
	p, q := pod("p", "a", "b"), pod("q", "b")
	b.claim("a", p)
	b.claim("b", p, q)
	f := b.driver()
	if err := b.m.Prepare(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	b.calls(f, "prepare default/a default/b")
	const want = "example.com/gpu=a-1,example.com/gpu=a-2,example.com/all=a,example.com/gpu=b-1,example.com/gpu=b-2,example.com/all=b " +
		"example.com/gpu=a-1,example.com/all=a,example.com/gpu=b-1,example.com/all=b "
	if got := b.gets(p); got != want {
		t.Errorf("the containers get\n%q, want\n%q", got, want)
	}
	for _, one := range []*v1.Pod{p, q, q} { // what is ready is not asked for again
		if err := b.m.Prepare(t.Context(), one); err != nil {
			t.Fatal(err)
		}
	}
	b.calls(f)
	if h := b.m.Health(q)["c1"]; len(h) != 1 || h[0].Name != "claim:r0/one" || len(h[0].Resources) != 2 || h[0].Resources[0] != (v1.ResourceHealth{ResourceID: "example.com/gpu=b-1", Health: v1.ResourceHealthStatusUnknown}) {
		t.Errorf("health: got %+v", h)
	}
	if of := b.m.Of(q, &q.Spec.Containers[1]); len(of) != 1 || of[0].Name != "b" || len(of[0].Devices) != 2 || of[0].Devices[0].Name != "b-1" || of[0].Devices[0].Driver != driverName {
		t.Errorf("devices of a container: got %+v", of)
	}
	for range 2 {
		if err := b.m.Unprepare(t.Context(), p.UID); err != nil {
			t.Fatal(err)
		}
	}
	b.calls(f, "unprepare default/a")
	if err := b.m.Unprepare(t.Context(), q.UID); err != nil {
		t.Fatal(err)
	}
	b.calls(f, "unprepare default/b")
	if list, err := readClaims(b.dir); err != nil || len(list) != 0 {
		t.Errorf("claims that are left on disk: %v, %v", list, err)
	}
}

func TestPodWaitsForItsClaims(t *testing.T) {
	t.Parallel()
	b := newBed(t).start(func(m *Manager) { m.waits.call = 300 * time.Millisecond })
	p := pod("p", "a")
	fails := func(want string) {
		t.Helper()
		if err := b.m.Prepare(t.Context(), p); err == nil || !strings.HasPrefix(err.Error(), "prepare dynamic resources: "+want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	fails(`fetch ResourceClaim a: resourceclaims.resource.k8s.io "a" not found`)
	c := b.claim("a")
	fails(fmt.Sprintf("pod p (uid-p) is not allowed to use ResourceClaim a (%s)", c.UID))
	if err := client.For(b.api, dra.ResourceClaims).Delete(t.Context(), "default", "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c = b.claim("a", p)
	fails("DRA driver gpu.example.com is not registered")
	if b.m.Unprepare(t.Context(), p.UID) != nil {
		t.Error("a pod for which no driver was asked cannot go without one")
	}
	f := b.driver()
	f.Set(nil, errors.New("it is on fire"), false)
	fails("NodePrepareResources: rpc error: code = Unknown desc = it is on fire")
	f.Set(func(r *drapb.NodePrepareResourcesResponse) { r.Claims[string(c.UID)].Error = "no such device" }, nil, false)
	fails("NodePrepareResources failed for ResourceClaim a: no such device")
	f.Set(func(r *drapb.NodePrepareResourcesResponse) { clear(r.Claims) }, nil, false)
	fails("NodePrepareResources skipped 1 ResourceClaims")
	f.Set(func(r *drapb.NodePrepareResourcesResponse) { r.Claims["other"] = nil }, nil, false)
	fails("NodePrepareResources returned result for unknown claim UID ")
	f.Set(nil, nil, true)
	fails("NodePrepareResources: rpc error: code = DeadlineExceeded")
	f.Set(nil, nil, false)
	if err := b.m.Prepare(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	made := "x"
	template := pod("t", "a")
	template.Spec.ResourceClaims[0] = v1.PodResourceClaim{Name: "r0", ResourceClaimTemplateName: &made}
	p = template
	fails(`pod "default/t": ResourceClaim not created yet`)
	name := "a"
	p.Status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: "r0", ResourceClaimName: &name}}
	fails("ResourceClaim default/a was not created for Pod default/t (Pod is not owner)")
	p.Status.ResourceClaimStatuses[0].ResourceClaimName = nil // none is needed
	if err := b.m.Prepare(t.Context(), p); err != nil {
		t.Error(err)
	}
}

func TestNewAgentTakesBackWhatTheOneBeforeHasAskedFor(t *testing.T) { // W1
	t.Parallel()
	b := newBed(t).start(nil)
	p, q := pod("p", "a"), pod("q", "b")
	b.claim("a", p)
	b.claim("b", q)
	f := b.driver()
	for _, one := range []*v1.Pod{p, q} {
		if err := b.m.Prepare(t.Context(), one); err != nil {
			t.Fatal(err)
		}
	}
	before := b.gets(p)
	b.end()
	f.Calls()
	b.start(nil)
	if got := b.gets(p); got != before {
		t.Errorf("after the agent was started again the containers get %q, want %q", got, before)
	}
	if err := b.m.Unprepare(t.Context(), p.UID); err == nil || err.Error() != "unprepare dynamic resources: DRA driver gpu.example.com is not registered" {
		t.Errorf("a pod that ends before the driver is back: got %v", err)
	}
	if err := b.register(f, drapb.DRAPluginService); err != nil {
		t.Fatal(err)
	}
	if err := b.m.Prepare(t.Context(), p); err != nil { // its sandbox is made anew
		t.Fatal(err)
	}
	b.calls(f, "prepare default/a")
	b.m.Keep(t.Context(), func(uid types.UID) bool { return uid == p.UID }) // q went while no agent was there
	wait.Until(t, func() error {
		if left := b.m.usedBy(q.UID); len(left) > 0 {
			return fmt.Errorf("still there: %v", left)
		}
		return nil
	})
	b.calls(f, "unprepare default/b")
	if got := b.gets(p); got != before {
		t.Errorf("the other pod's containers get %q, want %q", got, before)
	}
}

func TestClaimOfTheSameNameIsAnother(t *testing.T) {
	t.Parallel()
	b := newBed(t).start(nil)
	p, q := pod("p", "a"), pod("q", "a")
	old := b.claim("a", p)
	b.driver()
	if err := b.m.Prepare(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	api := client.For(b.api, dra.ResourceClaims)
	old = old.DeepCopy()
	old.Status = resourcev1.ResourceClaimStatus{}
	if _, err := api.UpdateStatus(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	if err := api.Delete(t.Context(), "default", "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	b.claim("a", q)
	want := fmt.Sprintf("prepare dynamic resources: old ResourceClaim with same name a and different UID %s still exists (previous pod force-deleted?!)", old.UID)
	if err := b.m.Prepare(t.Context(), q); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if err := b.m.Unprepare(t.Context(), p.UID); err != nil {
		t.Fatal(err)
	}
	if err := b.m.Prepare(t.Context(), q); err != nil {
		t.Errorf("after the old one was taken back: %v", err)
	}
}

func TestSharedClaimIsReadyForWhoComesWhileAnotherGoes(t *testing.T) {
	t.Parallel()
	b := newBed(t).start(nil)
	var pods []*v1.Pod
	for i := range 8 {
		pods = append(pods, pod(fmt.Sprint(i), "a"))
	}
	b.claim("a", pods...)
	f := b.driver()
	var wg sync.WaitGroup
	for _, p := range pods {
		wg.Go(func() {
			for range 5 {
				if err := b.m.Prepare(t.Context(), p); err != nil {
					t.Error(err)
				}
				if got := b.gets(p); !strings.HasPrefix(got, "example.com/gpu=a-1,") {
					t.Errorf("a container gets %q of a claim that is ready", got)
				}
				if err := b.m.Unprepare(t.Context(), p.UID); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	calls := f.Calls()
	for i, call := range calls {
		if want := []string{"prepare default/a", "unprepare default/a"}[i%2]; call != want {
			t.Fatalf("call %d of %d: got %s, want %s: one after the other", i, len(calls), call, want)
		}
	}
	if len(calls) == 0 || len(calls)%2 != 0 {
		t.Errorf("%d calls, want as many of both", len(calls))
	}
}

func TestDriversAreAskedByTheServiceTheyHave(t *testing.T) {
	t.Parallel()
	b := newBed(t).start(nil)
	p := pod("p", "a")
	b.claim("a", p)
	f := fakeplugin.NewBetaDriver(t, driverName, filepath.Join(b.dir, "beta.sock"))
	for _, c := range []struct {
		versions []string
		want     string
	}{
		{nil, "empty list of supported gRPC services (aka supported versions)"},
		{[]string{"1.0.0"}, `none of services supported by the plugin (["1.0.0"]) are supported by the kubelet (["v1.DRAPlugin" "v1beta1.DRAPlugin"])`},
	} {
		want := fmt.Sprintf("invalid supported gRPC versions of DRA driver plugin %s at endpoint %s: %s", driverName, f.Socket, c.want)
		if err := b.register(f, c.versions...); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if err := b.register(f, "v1.DRAResourceHealth", drabeta.DRAPluginService); err != nil {
		t.Fatal(err)
	}
	if err := b.register(f, drabeta.DRAPluginService); err == nil || err.Error() != fmt.Sprintf("endpoint %s already registered for DRA driver plugin %s", f.Socket, driverName) {
		t.Errorf("a second driver at the same socket: got %v", err)
	}
	if err := b.m.Prepare(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	b.calls(f, "prepare default/a")
	next := fakeplugin.NewDriver(t, driverName, filepath.Join(b.dir, "next.sock"))
	if err := b.register(next, drabeta.DRAPluginService, drapb.DRAPluginService); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, func() error {
		if d, err := b.m.find(driverName); err != nil || d.endpoint != next.Socket || !d.connected {
			return fmt.Errorf("asked would be %v, %v", d, err)
		}
		return nil
	})
	b.m.Handler().Deregister(plugin.Plugin{Name: driverName, Endpoint: f.Socket}) // the old one, after an update
	f.Stop()
	if err := b.m.Unprepare(t.Context(), p.UID); err != nil {
		t.Fatal(err)
	}
	b.calls(next, "unprepare default/a")
}

func TestAgentStartsWithAnyFileOfClaims(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"nothing":          "",
		"half":             `{"Data":"{\"kind\"`,
		"another form":     `{"version":"v1","entries":[],"checksum":0}`,
		"another sum":      `{"Data":"{}","Checksum":7}`,
		"of another group": `{"Data":"{\"kind\":\"X\",\"apiVersion\":\"y/v9\"}","Checksum":3053861026}`,
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, File), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if list, err := readClaims(dir); err == nil {
			t.Errorf("%s: got %v and no error", name, list)
		}
	}
	b := newBed(t)
	if err := os.WriteFile(filepath.Join(b.dir, File), []byte("\x00"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.start(nil)
	p := pod("p", "a")
	b.claim("a", p)
	b.driver()
	if err := b.m.Prepare(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if list, err := readClaims(b.dir); err != nil || len(list) != 1 || list[0].ClaimName != "a" || len(list[0].DriverState[driverName].Devices) != 3 {
		t.Errorf("claims on disk: %+v, %v", list, err)
	}
}

// slice makes a slice of a driver in the API.
func (b *bed) slice(name, driver, node string) {
	b.t.Helper()
	s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}}
	b.parse(`{driver: `+driver+`, nodeName: `+node+`, pool: {name: `+node+`, generation: 1, resourceSliceCount: 1}, devices: [{name: gpu-0}]}`, &s.Spec)
	if _, err := client.For(b.api, dra.ResourceSlices).Create(b.t.Context(), s); err != nil {
		b.t.Fatal(err)
	}
}

// slices waits until these are in the API.
func (b *bed) slices(want ...string) {
	b.t.Helper()
	wait.Until(b.t, func() error {
		list, err := client.For(b.api, dra.ResourceSlices).List(b.t.Context(), "", metav1.ListOptions{})
		if err != nil {
			return err
		}
		var got []string
		for _, s := range list {
			got = append(got, s.Name)
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			return fmt.Errorf("slices: %v, want %v", got, want)
		}
		return nil
	})
}

func TestSlicesOfDriversThatAreGoneAreDeleted(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.slice("old", driverName, "n1")
	b.slice("elsewhere", driverName, "n2")
	b.start(func(m *Manager) { m.waits.absence = 50 * time.Millisecond })
	b.slices("elsewhere") // of the start
	f := b.driver()
	b.slice("mine", driverName, "n1")
	b.slice("other", "nic.example.com", "n1")
	wait.Until(t, func() error {
		b.m.mu.Lock()
		defer b.m.mu.Unlock()
		if len(b.m.mu.wipes) > 0 || len(b.m.mu.drivers[driverName]) != 1 || !b.m.mu.drivers[driverName][0].connected {
			return errors.New("the driver is not connected")
		}
		return nil
	})
	b.slices("elsewhere", "mine", "other")
	f.Stop() // it is killed: its registration stays
	b.slices("elsewhere", "other")
}

func TestSlicesOfADriverThatComesBackStay(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.slice("old", driverName, "n1")
	b.start(func(m *Manager) { m.waits.absence = time.Hour })
	b.slices() // of the start
	f := b.driver()
	b.slice("mine", driverName, "n1")
	pending := func(want int) {
		t.Helper()
		wait.Until(t, func() error {
			b.m.mu.Lock()
			defer b.m.mu.Unlock()
			if len(b.m.mu.wipes) != want {
				return fmt.Errorf("%d deletions to come, want %d", len(b.m.mu.wipes), want)
			}
			return nil
		})
	}
	pending(0)
	f.Stop()
	pending(1)
	b.m.Handler().Deregister(plugin.Plugin{Name: driverName, Endpoint: f.Socket})
	wait.Until(t, func() error {
		if _, err := b.m.find(driverName); err == nil {
			return errors.New("the driver is still there")
		}
		return nil
	})
	b.driver()
	pending(0)
	b.slices("mine")
}

func TestPodIsToldOfTheHealthOfItsDevices(t *testing.T) {
	t.Parallel()
	for _, service := range []string{"v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"} {
		b := newBed(t).start(nil)
		p := pod("p", "a")
		b.claim("a", p)
		f := b.driver(service)
		if err := b.m.Prepare(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		health := func(want v1.ResourceHealthStatus, message string) {
			t.Helper()
			wait.Until(t, func() error {
				got := b.m.Health(p)["c1"][0].Resources[0]
				if got.ResourceID != "example.com/gpu=a-1" || got.Health != want || (got.Message == nil) != (message == "") || got.Message != nil && *got.Message != message {
					return fmt.Errorf("health: got %+v, want %s %q", got, want, message)
				}
				return nil
			})
		}
		health(v1.ResourceHealthStatusUnknown, "")
		f.Report("a-1", "", 0)
		health(v1.ResourceHealthStatusHealthy, "")
		f.Report("a-1", strings.Repeat("x", 2000), 0)
		health(v1.ResourceHealthStatusUnhealthy, strings.Repeat("x", 1021)+"...")
		f.Report("other", "gone", 0)
		health(v1.ResourceHealthStatusUnhealthy, strings.Repeat("x", 1021)+"...")
		f.Report("a-1", "", 1) // and then says nothing any more
		health(v1.ResourceHealthStatusHealthy, "")
		health(v1.ResourceHealthStatusUnknown, "")
		wait.Until(t, func() error {
			b.mu.Lock()
			defer b.mu.Unlock()
			if len(b.mu.pods) != 4 {
				return fmt.Errorf("the pod was told %d times, want each change once", len(b.mu.pods))
			}
			return nil
		})
		f.Report("a-1", "", 0)
		health(v1.ResourceHealthStatusHealthy, "")
		f.Stop()
		health(v1.ResourceHealthStatusUnknown, "")
	}
}

func TestNodeWithoutDriversHasNoClaims(t *testing.T) {
	t.Parallel()
	var m *Manager
	p := pod("p", "a")
	ids, err := m.CDI(p, &p.Spec.Containers[0])
	if m.Wants(p) || m.Prepare(t.Context(), p) != nil || m.Unprepare(t.Context(), p.UID) != nil || ids != nil || err != nil || m.Health(p) != nil || m.Of(p, &p.Spec.Containers[0]) != nil {
		t.Error("a node without drivers has claims")
	}
	m.Keep(t.Context(), func(types.UID) bool { return false })
}

func TestExtendedResourcesComeFromTheirClaim(t *testing.T) {
	t.Parallel()
	b := newBed(t).start(nil)
	p := pod("p")
	p.Spec.Containers[0].Resources.Requests = v1.ResourceList{"example.com/gpu": apiresource.MustParse("1")}
	p.Status.ExtendedResourceClaimStatus = &v1.PodExtendedResourceClaimStatus{ResourceClaimName: "x", RequestMappings: []v1.ContainerExtendedResourceRequest{
		{ContainerName: "c0", ResourceName: "example.com/gpu", RequestName: "two"}, {ContainerName: "c1", ResourceName: "example.com/gpu", RequestName: "one"},
	}}
	b.claim("x", p)
	f := b.driver()
	if !b.m.Wants(p) {
		t.Fatal("the pod wants no claims")
	}
	if err := b.m.Prepare(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if got, want := b.gets(p), "example.com/gpu=x-2,example.com/all=x  "; got != want {
		t.Errorf("the containers get %q, want %q", got, want)
	}
	if err := b.m.Unprepare(t.Context(), p.UID); err != nil {
		t.Fatal(err)
	}
	b.calls(f, "prepare default/x", "unprepare default/x")
}
