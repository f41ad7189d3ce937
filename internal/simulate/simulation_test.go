package simulate_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/apps"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/dra"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/plane"
	"github.com/kemudi/kemudi/internal/sim"
	"github.com/kemudi/kemudi/internal/simulate"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/trace"
)

const profile = `
pools:
- name: small
  count: 1
  max: 4
  cpu: "2"
  pods: 3
  idleAfter: 5m
- name: gpu
  count: 0
  max: 2
  devices: {example.com/gpu: "2"}
  labels: {accelerator: "yes"}
  taints: [{key: example.com/gpu, effect: NoSchedule}]
  provisionAfter: 2m
`

// bed is a simulation over a control plane of its own.
type bed struct {
	*testing.T
	p *plane.Plane
}

func newBed(t *testing.T) *bed {
	t.Helper()
	b := &bed{t, sim.Plane(t, plane.Options{})}
	b.simulate(profile)
	return b
}

// simulate runs pools until the test ends, or stop is called.
func (b *bed) simulate(profile string) (stop func()) {
	b.Helper()
	p, err := simulate.ParseProfile([]byte(profile))
	if err != nil {
		b.Fatal(err)
	}
	g := task.NewGroup(b.Context())
	s := simulate.New(simulate.Options{Pools: p.Pools, Transport: b.p.Admin(), Logger: slog.New(slog.DiscardHandler)})
	g.Go("simulation", s.Run)
	stop = func() {
		g.Cancel(context.Canceled)
		if err := g.Wait(); err != nil {
			b.Error(err)
		}
	}
	b.Cleanup(stop)
	return stop
}

func (b *bed) nodes() string {
	var names []string
	for _, n := range client.Cached(b.p.Admin(), core.Nodes, "").List("", nil) {
		names = append(names, n.Name)
	}
	return strings.Join(slices.Sorted(slices.Values(names)), " ")
}

// set makes or scales a set of pods.
func (b *bed) set(name string, replicas int32, change func(*corev1.PodSpec)) {
	b.Helper()
	sets, labels := client.For(b.p.Admin(), apps.ReplicaSets), map[string]string{"app": name}
	if _, ok := client.Cached(b.p.Admin(), apps.ReplicaSets, "").Get("default", name); ok {
		patch := client.Patch{Type: types.MergePatchType, Data: fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)}
		if _, err := sets.Patch(b.Context(), "default", name, "", patch); err != nil {
			b.Fatal(err)
		}
		return
	}
	spec := corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}
	if change != nil {
		change(&spec)
	}
	_, err := sets.Create(b.Context(), &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: ptr.To(replicas), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
		},
	})
	if err != nil {
		b.Fatal(err)
	}
}

func (b *bed) ready(name string) int32 {
	set, _ := client.Cached(b.p.Admin(), apps.ReplicaSets, "").Get("default", name)
	return set.Status.ReadyReplicas
}

func TestPoolsGrowByPodsThatFitNowhereAndShrinkAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		time.Sleep(time.Minute)
		if got := b.nodes(); got != "small-1" {
			t.Fatalf("at first: got nodes %q, want small-1", got)
		}
		b.set("web", 8, nil)
		time.Sleep(20 * time.Second)
		if got := b.nodes(); got != "small-1" {
			t.Errorf("before the time that a node takes to come: got nodes %q, want small-1", got)
		}
		time.Sleep(2 * time.Minute)
		trace.Proves(t, "CTL-013", "CTL-014", "CTL-015")
		if got, n := b.nodes(), b.ready("web"); got != "small-1 small-2 small-3" || n != 8 {
			t.Errorf("8 pods, 3 a node: got nodes %q and %d pods ready", got, n)
		}
		b.set("web", 20, nil)
		time.Sleep(5 * time.Minute)
		if got, n := b.nodes(), b.ready("web"); got != "small-1 small-2 small-3 small-4" || n != 12 {
			t.Errorf("more than the pool may have: got nodes %q and %d pods ready", got, n)
		}
		b.set("web", 0, nil)
		time.Sleep(4 * time.Minute)
		if got := b.nodes(); got != "small-1 small-2 small-3 small-4" {
			t.Errorf("idle, but not for long: got nodes %q", got)
		}
		time.Sleep(10 * time.Minute)
		if got := b.nodes(); len(strings.Fields(got)) != 1 {
			t.Errorf("idle for long: got nodes %q, want one, the least", got)
		}
	})
}

func TestNodesComeFromThePoolThatTakesThePod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.set("train", 3, func(s *corev1.PodSpec) {
			s.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
			one := corev1.ResourceList{"example.com/gpu": resource.MustParse("1")}
			s.Containers[0].Resources = corev1.ResourceRequirements{Requests: one, Limits: one}
		})
		b.set("huge", 1, func(s *corev1.PodSpec) {
			s.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("64")}
		})
		time.Sleep(time.Minute)
		if got := b.nodes(); got != "small-1" {
			t.Errorf("too early: got nodes %q", got)
		}
		time.Sleep(10 * time.Minute)
		if got, n := b.nodes(), b.ready("train"); got != "gpu-1 gpu-2 small-1" || n != 3 {
			t.Errorf("got nodes %q and %d pods ready, want both with devices, none for the pod that no node has room for", got, n)
		}
	})
}

// TestNodesComeWithTheDevicesThatClaimsAskFor has pods with claims wait, for devices that one pool
// has and for some that none has. Nodes take their devices with them when they go.
func TestNodesComeWithTheDevicesThatClaimsAskFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bed{t, sim.Plane(t, plane.Options{})}
		stop := b.simulate(`
pools:
- {name: plain, count: 1, max: 9}
- name: old
  count: 0
  max: 9
  drivers: [{name: gpu.example.com, count: 4, attributes: {model: {string: tiny}}}]
- name: new
  count: 0
  max: 9
  idleAfter: 5m
  drivers: [{name: gpu.example.com, count: 2, attributes: {model: {string: big}}, capacity: {memory: {value: 40Gi}}}]
`)
		b.deviceClass("big", `device.driver == "gpu.example.com" && device.attributes["gpu.example.com"].model == "big" && device.capacity["gpu.example.com"].memory.compareTo(quantity("40Gi")) >= 0`)
		b.deviceClass("huge", `device.driver == "gpu.example.com" && device.attributes["gpu.example.com"].model == "huge"`)
		b.set("train", 3, b.claim("big"))
		b.set("never", 1, b.claim("huge"))
		time.Sleep(5 * time.Minute)
		if got, n := b.nodes(), b.ready("train"); got != "new-1 new-2 plain-1" || n != 3 {
			t.Errorf("got nodes %q and %d pods ready, want two nodes of two devices each, none for the claim that no node serves", got, n)
		}
		if got := b.slices(); got != "new-1-gpu.example.com:2 new-2-gpu.example.com:2" {
			t.Errorf("got slices %s, want one for each node", got)
		}
		stop() // and again: what is published is known
		b.simulate("pools: [{name: new, count: 0, max: 9, idleAfter: 5m, drivers: [{name: gpu.example.com, count: 3}]}]")
		time.Sleep(time.Minute)
		if got := b.slices(); got != "new-1-gpu.example.com:3 new-2-gpu.example.com:3" {
			t.Errorf("other devices: got slices %s", got)
		}
		b.set("train", 0, nil)
		time.Sleep(20 * time.Minute)
		if got := b.nodes(); got != "plain-1" {
			t.Errorf("idle: got nodes %q", got)
		}
		if got := b.slices(); got != "" {
			t.Errorf("their nodes have gone: got slices %s", got)
		}
	})
}

// TestNodesComeWithDevicesThatServeExtendedResources has pods ask for a resource that no node has but as
// devices of a class.
func TestNodesComeWithDevicesThatServeExtendedResources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bed{t, sim.Plane(t, plane.Options{})}
		b.simulate("pools: [{name: plain, count: 1, max: 9}, {name: gpu, count: 0, max: 9, drivers: [{name: gpu.example.com, count: 2}]}]")
		b.deviceClass("gpu", `device.driver == "gpu.example.com"`)
		patch := client.Patch{Type: types.MergePatchType, Data: []byte(`{"spec":{"extendedResourceName":"example.com/gpu"}}`)}
		if _, err := client.For(b.p.Admin(), dra.DeviceClasses).Patch(t.Context(), "", "gpu", "", patch); err != nil {
			t.Fatal(err)
		}
		b.set("train", 3, func(s *corev1.PodSpec) {
			one := corev1.ResourceList{"example.com/gpu": resource.MustParse("1")}
			s.Containers[0].Resources = corev1.ResourceRequirements{Requests: one, Limits: one}
		})
		time.Sleep(5 * time.Minute)
		if got, n := b.nodes(), b.ready("train"); got != "gpu-1 gpu-2 plain-1" || n != 3 {
			t.Errorf("got nodes %q and %d pods ready, want two nodes of two devices each", got, n)
		}
	})
}

func (b *bed) deviceClass(name, expression string) {
	b.Helper()
	_, err := client.For(b.p.Admin(), dra.DeviceClasses).Create(b.Context(), &resourcev1.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       resourcev1.DeviceClassSpec{Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: expression}}}},
	})
	if err != nil {
		b.Fatal(err)
	}
}

// claim makes a template of claims for a device of a class, and has pods have one each.
func (b *bed) claim(class string) func(*corev1.PodSpec) {
	b.Helper()
	_, err := client.For(b.p.Admin(), dra.ResourceClaimTemplates).Create(b.Context(), &resourcev1.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: class},
		Spec: resourcev1.ResourceClaimTemplateSpec{Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{
			Requests: []resourcev1.DeviceRequest{{Name: "one", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: class}}},
		}}},
	})
	if err != nil {
		b.Fatal(err)
	}
	return func(s *corev1.PodSpec) {
		s.ResourceClaims = []corev1.PodResourceClaim{{Name: "device", ResourceClaimTemplateName: ptr.To(class)}}
		s.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "device"}}
	}
}

// slices lists what is published, each with its number of devices.
func (b *bed) slices() string {
	var list []string
	for _, s := range client.Cached(b.p.Admin(), dra.ResourceSlices, "").List("", nil) {
		list = append(list, fmt.Sprintf("%s:%d", s.Name, len(s.Spec.Devices)))
	}
	return strings.Join(list, " ")
}

func TestSimulationGoesOnWithTheNodesThatThereAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bed{t, sim.Plane(t, plane.Options{})}
		stop := b.simulate(profile)
		b.set("web", 8, nil)
		time.Sleep(3 * time.Minute)
		stop()
		b.simulate(profile)
		b.set("web", 9, nil)
		time.Sleep(3 * time.Minute)
		if got, n := b.nodes(), b.ready("web"); got != "small-1 small-2 small-3" || n != 9 {
			t.Errorf("got nodes %q and %d pods ready, want the three there were and 9 pods", got, n)
		}
		b.set("web", 12, nil)
		time.Sleep(3 * time.Minute)
		if got := b.nodes(); got != "small-1 small-2 small-3 small-4" {
			t.Errorf("got nodes %q, want one more", got)
		}
	})
}

// TestSimulationLeavesNodesOfOthersAlone has a node in the cluster that somebody else simulates, and one that was copied from another
// cluster, before the simulation begins again.
func TestSimulationLeavesNodesOfOthersAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bed{t, sim.Plane(t, plane.Options{})}
		nodes := client.For(b.p.Admin(), core.Nodes)
		room := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("7"), corev1.ResourcePods: resource.MustParse("9")}
		objects := []simulate.Object{}
		for name, version := range map[string]string{"theirs": "kwok-v0.8.0", "copied": "v1.30.0"} {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
			n.Status.NodeInfo.KubeletVersion, n.Status.Capacity, n.Status.Allocatable = version, room, room
			if name == "copied" {
				objects = append(objects, simulate.Object{Def: core.Nodes.Def, Object: n})
				simulate.Take(objects)
			}
			status := n.Status
			made, err := nodes.Create(t.Context(), n)
			if err != nil {
				t.Fatal(err)
			}
			made = made.DeepCopy()
			made.Status = status
			if _, err := nodes.UpdateStatus(t.Context(), made); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			stop := b.simulate("pools: [{name: small, count: 1}]")
			time.Sleep(time.Minute)
			for name, want := range map[string]string{"theirs": "kwok-v0.8.0 7 0", "copied": "sim 7 4", "small-1": "sim 4 4"} {
				n, err := nodes.Get(t.Context(), "", name)
				if err != nil {
					t.Fatal(err)
				}
				conditions := 0
				for _, c := range n.Status.Conditions {
					if c.Reason != "NodeStatusNeverUpdated" {
						conditions++
					}
				}
				if got := fmt.Sprint(n.Status.NodeInfo.KubeletVersion, " ", n.Status.Capacity.Cpu(), " ", conditions); got != want {
					t.Errorf("node %s: got version, processors and conditions %s, want %s", name, got, want)
				}
			}
			stop()
		}
	})
}

func TestProfilesThatCannotBeAreRefusedByField(t *testing.T) {
	for text, want := range map[string]string{
		"pools: []":                                                                      "pools: at least one is needed",
		"pools: [{name: A}]":                                                             `pools[0].name: "A": `,
		"pools: [{name: a, count: -1}]":                                                  "pools[0].count: -1 is negative",
		"pools: [{name: a, count: 2, min: 3}]":                                           "pools[0].min: 3 is not between 0 and count, 2",
		"pools: [{name: a, count: 2, max: 1}]":                                           "pools[0].max: 1 is less than count, 2",
		"pools: [{name: a, cpu: much}]":                                                  `pools[0].cpu: "much" is no amount above zero`,
		"pools: [{name: a}, {name: a}]":                                                  `pools[1].name: there is another pool "a"`,
		"pools: [{name: a, failing: 2}]":                                                 "pools[0].failing: 2 is not between 0 and 1",
		"pools: [{name: a, pods: 300}]":                                                  "pools[0].pods: 300 is not between 1 and 254",
		"pools: [{name: a, count: 30000}]":                                               "pools: 30000 nodes at the most are more than the 24320 that have addresses",
		"pools: [{name: a, colour: red}]":                                                `unknown field "colour"`,
		"pools: [{name: a, taints: [{key: k, effect: Never}]}]":                          `pools[0].taints[0].effect: "Never" is neither`,
		"pools: [{name: a, labels: {'a b': c}}]":                                         "pools[0].labels: a b=c: ",
		"pools: [{name: a, devices: {example.com/gpu: none}}]":                           `pools[0].devices[example.com/gpu]: "none" is no amount above zero`,
		"pools: [{name: a, drivers: [{name: A_b, count: 1}]}]":                           `pools[0].drivers[0].name: "A_b": `,
		"pools: [{name: a, drivers: [{name: d.io}]}]":                                    "pools[0].drivers[0].count: 0 is not between 1 and 128",
		"pools: [{name: a, drivers: [{name: d.io, count: 1}, {name: d.io, count: 2}]}]":  `pools[0].drivers[1].name: there is another driver "d.io"`,
		"pools: [{name: a, drivers: [{name: d.io, count: 1, attributes: {model: {}}}]}]": `pools[0].drivers[0].attributes[model]: Invalid value: "": exactly one value must be specified`,
		"pools: [{name: a, drivers: [{name: d.io, count: 1, capacity: {memory: {value: 1Gi, most: 2}}}]}]": `unknown field "most"`,
		"pools: [{name: a, count: 1, startAfter: 3s}, {name: b, max: 2}]":                                  "",
	} {
		_, err := simulate.ParseProfile([]byte(text))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}
