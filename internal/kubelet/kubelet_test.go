package kubelet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/api/coordination"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/storage"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/kubelet/fakecri"
	"github.com/kemudi/kemudi/internal/trace"
)

// testNode is a simulated node under test.
type testNode struct {
	t     *testing.T
	api   *memAPI
	cri   *fakecri.Runtime
	agent *Agent
	end   func() // stops the agent and waits for it

	with func(*Options) // further options of its agents; nil: none
	tune func(*Agent)   // changes to its agents before they run; nil: none
}

func newNode(t *testing.T, o fakecri.Options) *testNode {
	n := &testNode{t: t, api: newMemAPI(t), cri: fakecri.New(o)}
	n.run()
	return n
}

// run starts an agent, which is a new one each time.
func (n *testNode) run() {
	n.t.Helper()
	o := Options{
		NodeName: "n1", Transport: n.api, Runtime: n.cri, Images: n.cri, Events: n.api, Simulated: true,
		Capacity: v1.ResourceList{v1.ResourceCPU: resource.MustParse("4"), v1.ResourceMemory: resource.MustParse("8Gi")},
		Settings: Settings{MaxPods: 20}, Log: slog.New(slog.DiscardHandler),
	}
	if n.with != nil {
		n.with(&o)
	}
	a, err := New(o)
	if err != nil {
		n.t.Fatal(err)
	}
	n.agent = a
	if n.tune != nil {
		n.tune(a)
	}
	ctx, cancel := context.WithCancel(n.t.Context())
	done := make(chan error)
	go func() { done <- a.Run(ctx) }()
	n.end = func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			n.t.Errorf("Run: %v", err)
		}
	}
	synctest.Wait()
}

func inBubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t) })
}

// pod waits until nothing moves and returns the pod, or nil.
func (n *testNode) pod(name string) *v1.Pod {
	n.t.Helper()
	synctest.Wait()
	return getPod(n.t, n.api, name)
}

func (n *testNode) after(d time.Duration, name string) *v1.Pod {
	n.t.Helper()
	time.Sleep(d)
	return n.pod(name)
}

func TestRunsAndDeletesAPod(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNode(t, fakecri.Options{})
		defer func() { n.end() }()
		createPod(t, n.api, "web", `{containers: [{name: web, image: web}]}`)
		p := n.pod("web")
		trace.Proves(t, "COMP-025", "CTL-007", "PLC-005", "CON-004/start")
		if p.Status.Phase != v1.PodRunning || !core.PodReady(p) || p.Status.PodIP == "" || p.Status.HostIP == "" || p.Status.StartTime == nil {
			t.Fatalf("status: got %+v, want running and ready with addresses", p.Status)
		}
		trace.Proves(t, "C-296")
		if net.ParseIP(p.Status.HostIP) == nil || len(p.Status.HostIPs) == 0 || p.Status.HostIPs[0].IP != p.Status.HostIP {
			t.Errorf("addresses of the host: got %q and %v", p.Status.HostIP, p.Status.HostIPs)
		}
		if cs := p.Status.ContainerStatuses[0]; !strings.HasPrefix(cs.ContainerID, "fake://") || cs.ImageID == "" || cs.Started == nil || !*cs.Started {
			t.Errorf("container status: got %+v", cs)
		}
		if got := n.api.Updates("pods/status"); got > 4 {
			t.Errorf("status writes of a start: got %d, want at most 4", got)
		}
		want := []string{
			`web spec.containers{web} Normal Pulling: Pulling image "web"`,
			"web spec.containers{web} Normal Created: Container created",
			"web spec.containers{web} Normal Started: Container started",
		}
		got := strings.Join(n.api.TakeEvents(), "\n")
		trace.Proves(t, "PLC-040")
		for _, w := range want {
			if !strings.Contains(got, w) {
				t.Errorf("events: no %q in\n%s", w, got)
			}
		}
		var last atomic.Int64 // the grace period of the last deletion
		n.api.RefuseWith(func(r *client.Request) error {
			if r.Verb == "delete" {
				last.Store(*r.Delete.GracePeriodSeconds)
			}
			return nil
		})
		deletePod(t, n.api, "web", 30)
		gone := n.pod("web") == nil
		trace.Proves(t, "POD-042")
		if !gone || last.Load() != 0 {
			t.Errorf("deleted pod: gone is %t, the last grace period %d, want it gone by one of 0", gone, last.Load())
		}
		if n.cri.Calls("RemovePodSandbox") != 1 {
			t.Error("sandbox is left")
		}
	})
}

func TestFailingContainerIsRestartedWithBackoff(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNode(t, fakecri.Options{})
		defer func() { n.end() }()
		createPod(t, n.api, "bad", `{containers: [{name: c, image: x, command: [sh, -c, "sleep 1; exit 3"]}]}`)
		before := n.pod("bad")
		trace.Proves(t, "PLC-062", "PLC-063", "CON-004/restart")
		// Starts at 0, 1 (no back-off), 12 (10 s), 33 (20 s), 74, 155, 316, then every 300 s.
		for _, want := range []struct {
			at       time.Duration
			restarts int32
		}{{500 * time.Millisecond, 0}, {1500 * time.Millisecond, 1}, {11 * time.Second, 1}, {13 * time.Second, 2}, {34 * time.Second, 3}, {75 * time.Second, 4}, {320 * time.Second, 6}, {618 * time.Second, 7}, {919 * time.Second, 8}} {
			time.Sleep(want.at - time.Since(getPod(t, n.api, "bad").CreationTimestamp.Time))
			p := n.pod("bad")
			if got := p.Status.ContainerStatuses[0].RestartCount; got != want.restarts {
				t.Errorf("at %s: got %d restarts, want %d", want.at, got, want.restarts)
			}
		}
		p := n.after(30*time.Second, "bad")
		cs := p.Status.ContainerStatuses[0]
		if w := cs.State.Waiting; w == nil || w.Reason != "CrashLoopBackOff" || !strings.HasPrefix(w.Message, "back-off 5m0s restarting failed container=c pod=bad_default(") {
			t.Errorf("state: got %+v", cs.State)
		}
		trace.Proves(t, "PLC-083")
		if l := cs.LastTerminationState.Terminated; l == nil || l.ExitCode != 3 || l.Reason != "Error" || p.Status.Phase != v1.PodRunning {
			t.Errorf("last state: got %+v in phase %s", l, p.Status.Phase)
		}
		trace.Proves(t, "PODO-016")
		if p.UID != before.UID || p.Status.PodIP != before.Status.PodIP || n.cri.Calls("RunPodSandbox") != 1 {
			t.Errorf("the pod around it: got %s %s, %d sandboxes, want %s %s and one", p.UID, p.Status.PodIP, n.cri.Calls("RunPodSandbox"), before.UID, before.Status.PodIP)
		}
	})
}

func TestNewAgentAdoptsWhatRuns(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNode(t, fakecri.Options{})
		defer func() { n.end() }()
		createPod(t, n.api, "web", `{containers: [{name: web, image: web}]}`)
		createPod(t, n.api, "orphan", `{containers: [{name: web, image: web}]}`)
		before := n.pod("web")
		n.end()
		deletePod(t, n.api, "orphan", 0)
		n.run()
		time.Sleep(10 * time.Second)
		after := n.pod("web")
		if got, want := after.Status.ContainerStatuses[0], before.Status.ContainerStatuses[0]; got.ContainerID != want.ContainerID || got.RestartCount != 0 {
			t.Errorf("container: got %s, want %s unchanged", got.ContainerID, want.ContainerID)
		}
		if n.cri.Calls("CreateContainer") != 2 {
			t.Errorf("containers created: got %d, want 2", n.cri.Calls("CreateContainer"))
		}
		list, err := n.cri.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{})
		if err != nil || len(list.Items) != 1 {
			t.Errorf("sandboxes: got %d (%v), want only that of web", len(list.Items), err)
		}
	})
}

func TestJobPodSucceedsAndStaysFinished(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNode(t, fakecri.Options{})
		defer func() { n.end() }()
		createPod(t, n.api, "ok", `{restartPolicy: Never, containers: [{name: c, image: x, command: [sleep, "5"]}]}`)
		createPod(t, n.api, "bad", `{restartPolicy: Never, containers: [{name: c, image: x, command: ["false"]}]}`)
		trace.Proves(t, "PLC-039", "PLC-081")
		if p := n.after(6*time.Second, "ok"); p.Status.Phase != v1.PodSucceeded || p.Status.ContainerStatuses[0].State.Terminated.Reason != "Completed" {
			t.Errorf("ok: got %+v", p.Status)
		}
		trace.Proves(t, "PLC-039", "PLC-085", "C-270")
		if p := n.pod("bad"); p.Status.Phase != v1.PodFailed || p.Status.ContainerStatuses[0].State.Terminated.Reason != "Error" {
			t.Errorf("bad: got %+v", p.Status)
		}
		n.end()
		n.run()
		trace.Proves(t, "PLC-006")
		if p := n.after(time.Minute, "ok"); p.Status.Phase != v1.PodSucceeded || n.cri.Calls("CreateContainer") != 2 {
			t.Errorf("after a restart of the agent: got %s, %d containers made", p.Status.Phase, n.cri.Calls("CreateContainer"))
		}
		deletePod(t, n.api, "ok", 0)
		deletePod(t, n.api, "bad", 0)
		time.Sleep(time.Second)
		synctest.Wait()
		if list, _ := n.cri.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{}); len(list.Items) != 0 {
			t.Errorf("sandboxes left: %v", list.Items)
		}
	})
}

func TestNodeRegistersAndKeepsItsLease(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNode(t, fakecri.Options{})
		defer func() { n.end() }()
		node, err := client.For(n.api, core.Nodes).Get(t.Context(), "", "n1")
		if err != nil {
			t.Fatal(err)
		}
		trace.Proves(t, "NODE-067", "NODE-029", "NODE-085")
		if c := node.Status.Capacity; node.Labels[v1.LabelHostname] != "n1" || c.Cpu().Value() != 4 || c.Memory().Value() != 8<<30 || c.Pods().Value() != 20 || node.Status.Allocatable.Pods().Value() != 20 {
			t.Errorf("node: got %+v", node)
		}
		if got := strings.Join(node.Status.DeclaredFeatures, " "); got != "ExtendWebSocketsToKubelet InPlacePodLevelResourcesVerticalScaling InPlacePodVerticalScalingInitContainers RestartAllContainersOnContainerExits" {
			t.Errorf("features of the node: got %s", got)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		lease, err := client.For(n.api, coordination.Leases).Get(t.Context(), v1.NamespaceNodeLease, "n1")
		if err != nil {
			t.Fatal(err)
		}
		trace.Proves(t, "NODE-050", "NODE-052/leases")
		if age := time.Since(lease.Spec.RenewTime.Time); age > 10*time.Second || *lease.Spec.LeaseDurationSeconds != 40 {
			t.Errorf("lease: renewed %s ago, lasts %d s", age, *lease.Spec.LeaseDurationSeconds)
		}
		trace.Proves(t, "NODE-052/status")
		if got := n.api.Updates("nodes/status"); got < 12 || got > 14 {
			t.Errorf("node status writes in an hour: got %d, want one in 5 minutes", got)
		}
	})
}

// TestNodeHasACSINode also the Node that is made anew while the CSINode of the one before is still there.
func TestNodeHasACSINode(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNode(t, fakecri.Options{})
		defer func() { n.end() }()
		nodes, csiNodes := client.For(n.api, core.Nodes), client.For(n.api, storage.CSINodes)
		check := func(when string, drivers int) {
			t.Helper()
			node, err := nodes.Get(t.Context(), "", "n1")
			if err != nil {
				t.Fatal(err)
			}
			got, err := csiNodes.Get(t.Context(), "", "n1")
			if err != nil {
				t.Fatalf("%s: %v", when, err)
			}
			want := []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n1", UID: node.UID}}
			if !slices.Equal(got.OwnerReferences, want) || len(got.Spec.Drivers) != drivers {
				t.Errorf("%s: got %+v, want one of the node with %d drivers", when, got, drivers)
			}
			if got := got.Annotations["storage.alpha.kubernetes.io/migrated-plugins"]; !strings.HasPrefix(got, "kubernetes.io/aws-ebs,kubernetes.io/azure-disk,") {
				t.Errorf("%s: got volumes of old kinds %q", when, got)
			}
		}
		check("registered", 0)
		with, err := csiNodes.Get(t.Context(), "", "n1")
		if err != nil {
			t.Fatal(err)
		}
		with = with.DeepCopy()
		with.Spec.Drivers = []storagev1.CSINodeDriver{{Name: "disk.example.com", NodeID: "1"}}
		if _, err := csiNodes.Update(t.Context(), with); err != nil {
			t.Fatal(err)
		}
		if err := nodes.Delete(t.Context(), "", "n1", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		check("registered anew", 1)
	})
}

func TestNodeRejectsWhatDoesNotFit(t *testing.T) {
	trace.Proves(t, "NODE-028")
	inBubble(t, func(t *testing.T) {
		n := newNode(t, fakecri.Options{})
		defer func() { n.end() }()
		createPod(t, n.api, "a", `{containers: [{name: c, image: x, ports: [{containerPort: 80, hostPort: 80}], resources: {requests: {cpu: 3}}}]}`)
		createPod(t, n.api, "b", `{containers: [{name: c, image: x, resources: {requests: {cpu: 2}}}]}`)
		createPod(t, n.api, "c", `{containers: [{name: c, image: x, ports: [{containerPort: 80, hostPort: 80}]}]}`)
		createPod(t, n.api, "d", `{nodeSelector: {disk: ssd}, containers: [{name: c, image: x}]}`)
		for name, want := range map[string][2]string{
			"b": {"OutOfcpu", "Pod was rejected: Node didn't have enough resource: cpu, requested: 2000, used: 3000, capacity: 4000"},
			"c": {"NodePorts", "Pod was rejected: Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"},
			"d": {"NodeAffinity", "Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"},
		} {
			p := n.pod(name)
			if p.Status.Phase != v1.PodFailed || p.Status.Reason != want[0] || p.Status.Message != want[1] {
				t.Errorf("%s: got %s %s %q, want Failed %s %q", name, p.Status.Phase, p.Status.Reason, p.Status.Message, want[0], want[1])
			}
			if len(p.Status.ContainerStatuses) > 0 { // kubectl would show what they wait for, and not the reason
				t.Errorf("%s: got %+v, want no statuses of containers that nobody has tried to run", name, p.Status.ContainerStatuses)
			}
		}
		if events := n.api.TakeEvents(); !slices.Contains(events, "d Warning NodeAffinity: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector") {
			t.Errorf("events: got %q, want the reason as it is", events)
		}
		n.tells("/metrics", `kubelet_admission_rejections_total\{reason="OutOfcpu"\} 1`, `kubelet_admission_rejections_total\{reason="NodePorts"\} 1`)
		deletePod(t, n.api, "a", 30)
		n.pod("a")
		createPod(t, n.api, "b2", `{containers: [{name: c, image: x, resources: {requests: {cpu: 2}}}]}`)
		if p := n.pod("b2"); p.Status.Phase != v1.PodRunning {
			t.Errorf("after room was made: got %s %s", p.Status.Phase, p.Status.Message)
		}
	})
}

// The scheduler takes a pod that has left the API for gone, as those are that it preempts
// without a time to end.
func TestNodeHasRoomAsSoonAsAPodHasLeftTheAPI(t *testing.T) {
	trace.Proves(t, "NODE-028")
	inBubble(t, func(t *testing.T) {
		n := newNode(t, fakecri.Options{Program: func(*runtimeapi.ContainerConfig) fakecri.Program { return fakecri.Program{TermAfter: -1} }})
		defer func() { n.end() }()
		const spec = `{containers: [{name: c, image: x, ports: [{containerPort: 80, hostPort: 80}], resources: {requests: {cpu: 3}}}]}`
		createPod(t, n.api, "low", spec)
		n.pod("low")
		deletePod(t, n.api, "low", 0)
		createPod(t, n.api, "high", spec)
		if p := n.pod("high"); p.Status.Phase != v1.PodRunning {
			t.Errorf("got %s %s, want Running", p.Status.Phase, p.Status.Message)
		}
	})
}

func TestNodeRejectsWhatItMustNotRun(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := &testNode{t: t, api: newMemAPI(t), cri: fakecri.New(fakecri.Options{}), with: func(o *Options) { o.Settings.UnsafeSysctls = []string{"kernel.msg*"} }}
		n.run()
		defer func() { n.end() }()
		const sysctl = `{securityContext: {sysctls: [{name: kernel.shm_rmid_forced, value: "1"}, {name: %s, value: "1"}]}, containers: [{name: c, image: x}]}`
		createPod(t, n.api, "named", fmt.Sprintf(sysctl, "kernel.msgmax"))
		createPod(t, n.api, "unsafe", fmt.Sprintf(sysctl, "kernel.sem"))
		createPod(t, n.api, "linux", `{os: {name: linux}, containers: [{name: c, image: x}]}`)
		createPod(t, n.api, "windows", `{os: {name: windows}, containers: [{name: c, image: x}]}`)
		for _, name := range []string{"named", "linux"} {
			if p := n.pod(name); p.Status.Phase != v1.PodRunning {
				t.Errorf("%s: got %s %s, want Running", name, p.Status.Phase, p.Status.Message)
			}
		}
		for name, want := range map[string][2]string{
			"unsafe":  {"SysctlForbidden", `Pod was rejected: forbidden sysctl: "kernel.sem" not allowlisted`},
			"windows": {"PodOSNotSupported", "Pod was rejected: Failed to admit pod as the OS field doesn't match node OS"},
		} {
			p := n.pod(name)
			if p.Status.Phase != v1.PodFailed || p.Status.Reason != want[0] || p.Status.Message != want[1] {
				t.Errorf("%s: got %s %s %q, want Failed %s %q", name, p.Status.Phase, p.Status.Reason, p.Status.Message, want[0], want[1])
			}
		}
	})
}

func TestNodeRejectsStrictGroupsThatItsRuntimeDoesNotKeep(t *testing.T) {
	for _, merges := range []bool{false, true} {
		inBubble(t, func(t *testing.T) {
			n := newNode(t, fakecri.Options{MergesGroups: merges})
			defer func() { n.end() }()
			createPod(t, n.api, "strict", `{securityContext: {supplementalGroupsPolicy: Strict}, containers: [{name: c, image: x}]}`)
			createPod(t, n.api, "merge", `{securityContext: {supplementalGroupsPolicy: Merge}, containers: [{name: c, image: x}]}`)
			want := map[string]string{"merge": "Running  ", "strict": "Running  "}
			if merges {
				want["strict"] = "Failed SupplementalGroupsPolicyNotSupported Pod was rejected: SupplementalGroupsPolicy=Strict is not supported in this node"
			}
			for name, want := range want {
				if s := n.pod(name).Status; fmt.Sprint(s.Phase, " ", s.Reason, " ", s.Message) != want {
					t.Errorf("%s, a runtime that merges is %t: got %s %s %s, want %s", name, merges, s.Phase, s.Reason, s.Message, want)
				}
			}
			node, err := client.For(n.api, core.Nodes).Get(t.Context(), "", "n1")
			if err != nil {
				t.Fatal(err)
			}
			if f := node.Status.Features; f == nil || f.SupplementalGroupsPolicy == nil || *f.SupplementalGroupsPolicy == merges {
				t.Errorf("features of the node: got %+v, a runtime that merges is %t", f, merges)
			}
		})
	}
}

func TestStatusIsWrittenWhenTheAPIIsBack(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNode(t, fakecri.Options{})
		defer func() { n.end() }()
		createPod(t, n.api, "web", `{containers: [{name: web, image: web}]}`)
		n.pod("web")
		n.api.BreakWith(errors.New("connection refused"))
		n.cri.Exit("default/web", "web", 1, "")
		time.Sleep(10 * time.Minute)
		n.api.BreakWith(nil)
		if p := n.after(2*time.Minute, "web"); p.Status.ContainerStatuses[0].RestartCount != 1 || !core.PodReady(p) {
			t.Errorf("status: got %+v", p.Status)
		}
	})
}

// resize asks for other resources of a pod's first container.
func (n *testNode) resize(name, cpu, memory string) {
	n.t.Helper()
	pod := getPod(n.t, n.api, name).DeepCopy()
	list := v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory)}
	pod.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: list, Limits: list}
	if _, err := pods(n.api).UpdateSub(n.t.Context(), "resize", pod); err != nil {
		n.t.Fatal(err)
	}
}

func TestPodIsResizedInPlaceIfTheNodeHasRoom(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNode(t, fakecri.Options{})
		defer func() { n.end() }()
		createPod(t, n.api, "a", `{containers: [{name: c, image: x, resources: {requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 1, memory: 1Gi}}}]}`)
		createPod(t, n.api, "b", `{containers: [{name: c, image: x, resources: {requests: {cpu: 2}}}]}`)
		createPod(t, n.api, "r", `{containers: [{name: c, image: x, resizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}], resources: {requests: {cpu: 100m, memory: 1Gi}, limits: {cpu: 100m, memory: 1Gi}}}]}`)
		n.pod("a")
		n.resize("a", "1500m", "512Mi")
		p := n.pod("a")
		cs := p.Status.ContainerStatuses[0]
		if cs.Resources.Limits.Cpu().MilliValue() != 1500 || cs.Resources.Requests.Memory().Value() != 512<<20 || cs.AllocatedResources.Cpu().MilliValue() != 1500 || cs.RestartCount != 0 || p.Status.ObservedGeneration != 2 {
			t.Errorf("resized: got %+v", cs)
		}
		n.resize("a", "2", "512Mi")
		p = n.pod("a")
		if c := core.PodCondition(&p.Status, v1.PodResizePending); c == nil || c.Reason != "Deferred" || c.Message != "Node didn't have enough resource: cpu, requested: 2000, used: 2100, capacity: 4000" {
			t.Errorf("too large for now: got %+v", c)
		}
		if got := p.Status.ContainerStatuses[0].AllocatedResources.Cpu().MilliValue(); got != 1500 {
			t.Errorf("allocated while deferred: got %d", got)
		}
		// One that is started anew meanwhile has what it had.
		n.cri.Exit("default/a", "c", 1, "")
		p = n.after(time.Minute, "a")
		cs = p.Status.ContainerStatuses[0]
		if cs.RestartCount != 1 || cs.State.Running == nil || cs.Resources.Limits.Cpu().MilliValue() != 1500 || cs.AllocatedResources.Cpu().MilliValue() != 1500 {
			t.Errorf("started anew while deferred: got %+v", cs)
		}
		if c := core.PodCondition(&p.Status, v1.PodResizePending); c == nil || c.Reason != "Deferred" {
			t.Errorf("started anew while deferred: got %+v", p.Status.Conditions)
		}
		n.resize("a", "5", "512Mi")
		p = n.pod("a")
		n.tells("/metrics", `kubelet_pod_pending_resizes\{reason="infeasible"\} 1`, `kubelet_pod_in_progress_resizes 0`)
		if c := core.PodCondition(&p.Status, v1.PodResizePending); c == nil || c.Reason != "Infeasible" || c.Message != "Node didn't have enough capacity: cpu, requested: 5000, capacity: 4000" {
			t.Errorf("too large for ever: got %+v", c)
		}
		n.resize("a", "2", "512Mi")
		n.pod("a")
		deletePod(t, n.api, "b", 0)
		p = n.pod("a")
		if got := p.Status.ContainerStatuses[0].Resources.Limits.Cpu().MilliValue(); got != 2000 || core.PodCondition(&p.Status, v1.PodResizePending) != nil || core.PodCondition(&p.Status, v1.PodResizeInProgress) != nil {
			t.Errorf("after room was made: got %d %+v", got, p.Status.Conditions)
		}
		n.tells("/metrics",
			`kubelet_container_requested_resizes_total\{operation="increase",requirement="limits",resource="cpu"\} 3`,
			`kubelet_container_requested_resizes_total\{operation="decrease",requirement="requests",resource="cpu"\} 1`,
			`kubelet_container_requested_resizes_total\{operation="decrease",requirement="requests",resource="memory"\} 1`,
			`kubelet_pod_infeasible_resizes_total\{reason_detail="insufficient_node_allocatable"\} 1`,
			`kubelet_pod_deferred_accepted_resizes_total\{retry_trigger="pods_removed"\} 1`,
			`kubelet_pod_resize_duration_milliseconds_count\{success="true"\} 2`)
		var told []string
		for _, e := range n.api.TakeEvents() {
			if strings.HasPrefix(e, "a ") && strings.Contains(e, " Resize") {
				told = append(told, e)
			}
		}
		asked := func(cpu string, generation int, problem string) string {
			list := `{"cpu":"` + cpu + `","memory":"512Mi"}`
			return fmt.Sprintf(`{"containers":[{"name":"c","resources":{"limits":%s,"requests":%s}}],"generation":%d%s}`, list, list, generation, problem)
		}
		if want := []string{
			"a Normal ResizeStarted: Pod resize started: " + asked("1500m", 2, ""),
			"a Normal ResizeCompleted: Pod resize completed: " + asked("1500m", 2, ""),
			"a Warning ResizeDeferred: Pod resize Deferred: " + asked("2", 3, `,"error":"Node didn't have enough resource: cpu, requested: 2000, used: 2100, capacity: 4000"`),
			"a Warning ResizeInfeasible: Pod resize Infeasible: " + asked("5", 4, `,"error":"Node didn't have enough capacity: cpu, requested: 5000, capacity: 4000"`),
			"a Warning ResizeDeferred: Pod resize Deferred: " + asked("2", 5, `,"error":"Node didn't have enough resource: cpu, requested: 2000, used: 2100, capacity: 4000"`),
			"a Normal ResizeStarted: Pod resize started: " + asked("2", 5, ""),
			"a Normal ResizeCompleted: Pod resize completed: " + asked("2", 5, ""),
		}; !slices.Equal(told, want) {
			t.Errorf("events: got\n%s\nwant\n%s", strings.Join(told, "\n"), strings.Join(want, "\n"))
		}
		n.resize("a", "2", "2Mi") // in use: 4 MiB
		p = n.pod("a")
		const below = "cannot decrease memory limits: [attempting to set pod memory limit (2097152) below current usage (4194304), " +
			"attempting to set container \"c\" memory limit (2097152) below current usage (4194304)]"
		if c := core.PodCondition(&p.Status, v1.PodResizeInProgress); c == nil || c.Reason != "Error" || c.Message != below {
			t.Errorf("less than in use: got %+v", c)
		}
		if got := p.Status.ContainerStatuses[0]; got.Resources.Limits.Memory().Value() != 512<<20 || got.RestartCount != 1 {
			t.Errorf("less than in use: got %+v", got)
		}
		n.resize("r", "200m", "1Gi")
		if got := n.pod("r").Status.ContainerStatuses[0].RestartCount; got != 0 {
			t.Errorf("restarts after a change of CPU: got %d", got)
		}
		n.resize("r", "200m", "2Gi")
		if got := n.pod("r").Status.ContainerStatuses[0]; got.RestartCount != 1 || got.Resources.Limits.Memory().Value() != 2<<30 {
			t.Errorf("after a change of memory: got %+v, want one restart", got)
		}
	})
}

func TestAPodIsResizedAsAWholeAndSoAreItsInitContainers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNode(t, fakecri.Options{})
		defer func() { n.end() }()
		trace.Proves(t, "KEP-5419")
		createPod(t, n.api, "w", `{resources: {requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 2, memory: 1Gi}}, containers: [{name: c, image: x}]}`)
		check := func(given, allocated string, pending bool) {
			t.Helper()
			st := n.pod("w").Status
			if st.Resources == nil || st.Resources.Requests.Cpu().String() != given || st.AllocatedResources.Cpu().String() != allocated ||
				(core.PodCondition(&st, v1.PodResizePending) != nil) != pending || core.PodCondition(&st, v1.PodResizeInProgress) != nil {
				t.Errorf("got %+v, allocated %v, conditions %+v; want %s, %s", st.Resources, st.AllocatedResources, st.Conditions, given, allocated)
			}
		}
		ask := func(cpu string) {
			t.Helper()
			pod := getPod(t, n.api, "w").DeepCopy()
			pod.Spec.Resources.Requests[v1.ResourceCPU], pod.Spec.Resources.Limits[v1.ResourceCPU] = resource.MustParse(cpu), resource.MustParse("8")
			if _, err := pods(n.api).UpdateSub(t.Context(), "resize", pod); err != nil {
				t.Fatal(err)
			}
		}
		check("1", "1", false)
		ask("1500m")
		check("1500m", "1500m", false)
		ask("5")
		check("1500m", "1500m", true)
		n.end()
		n.run()
		check("1500m", "1500m", true)
		ask("2")
		check("2", "2", false)
		if got := n.pod("w").Status.ContainerStatuses[0].RestartCount; got != 0 {
			t.Errorf("got %d restarts, want none", got)
		}

		createPod(t, n.api, "i", `{initContainers: [{name: i, image: x, command: [sleep, infinity], resources: {requests: {cpu: 100m}, limits: {cpu: 200m}}}], containers: [{name: c, image: x}]}`)
		pod := n.pod("i").DeepCopy()
		pod.Spec.InitContainers[0].Resources.Limits[v1.ResourceCPU] = resource.MustParse("300m")
		if _, err := pods(n.api).UpdateSub(t.Context(), "resize", pod); err != nil {
			t.Fatal(err)
		}
		if got := n.pod("i").Status.InitContainerStatuses[0]; got.State.Running == nil || got.Resources.Limits.Cpu().String() != "300m" || got.RestartCount != 0 {
			t.Errorf("init container: got %+v, want it to run on with 300m", got)
		}
	})
}

func TestContainersThatAreStartedWhileAResizeWaitsHaveWhatTheirPodWasGranted(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var created []int64
		n := newNode(t, fakecri.Options{Create: func(c *runtimeapi.ContainerConfig) error {
			if c.Metadata.Name == "c" {
				created = append(created, c.Linux.Resources.CpuQuota)
			}
			return nil
		}})
		defer func() { n.end() }()
		createPod(t, n.api, "other", `{containers: [{name: o, image: x, resources: {requests: {cpu: 3}}}]}`)
		for _, restarted := range []bool{false, true} {
			name := fmt.Sprint("w-", restarted)
			createPod(t, n.api, name, `{initContainers: [{name: i, image: x, command: [sleep, infinity]}],
				containers: [{name: c, image: x, resources: {requests: {cpu: 200m, memory: 64Mi}, limits: {cpu: 200m, memory: 64Mi}}}]}`)
			n.pod(name)
			n.resize(name, "2", "64Mi")
			st := n.pod(name).Status
			if c := core.PodCondition(&st, v1.PodResizePending); c == nil || c.Reason != "Deferred" || st.ContainerStatuses[0].AllocatedResources.Cpu().MilliValue() != 200 {
				t.Fatalf("%s: got %+v, want that it waits and has 200m", name, st)
			}
			if restarted {
				n.end()
				n.run()
				n.pod(name)
			}
			var granted v1.Pod
			if err := json.Unmarshal([]byte(n.get("/allocatedPods/default/"+name)), &granted); err != nil || granted.Spec.Containers[0].Resources.Requests.Cpu().MilliValue() != 200 || granted.Status.Phase != "" {
				t.Errorf("%s: as allocated: got %v, %+v", name, err, granted)
			}
			created = nil
			n.cri.Exit("default/"+name, "i", 0, "")
			st = n.pod(name).Status
			if got := st.ContainerStatuses[0]; len(created) != 1 || created[0] != 20000 || got.Resources.Limits.Cpu().MilliValue() != 200 || got.State.Running == nil {
				t.Errorf("%s: started with %v, got %+v, want 200m", name, created, got)
			}
			if core.PodCondition(&st, v1.PodResizePending) == nil {
				t.Errorf("%s: got %+v, want that it goes on waiting", name, st.Conditions)
			}
		}
	})
}

func TestContainersOfAPodAreResizedTogether(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNode(t, fakecri.Options{})
		defer func() { n.end() }()
		createPod(t, n.api, "web", `{containers: [
			{name: a, image: x, resources: {requests: {cpu: 100m, memory: 100Mi}, limits: {cpu: 100m, memory: 100Mi}}},
			{name: b, image: x, resources: {requests: {cpu: 200m, memory: 200Mi}, limits: {cpu: 200m, memory: 200Mi}}},
			{name: c, image: x, resources: {requests: {cpu: 300m, memory: 300Mi}, limits: {cpu: 300m, memory: 300Mi}}}]}`)
		n.pod("web")
		trace.Proves(t, "C-281")
		for _, sizes := range [][]string{{"150m 150Mi", "100m 100Mi", "200m 200Mi"}, {"100m 100Mi", "200m 200Mi", "300m 300Mi"}} { // net down, and back
			pod := getPod(t, n.api, "web").DeepCopy()
			for i, size := range sizes {
				cpu, memory, _ := strings.Cut(size, " ")
				list := v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory)}
				pod.Spec.Containers[i].Resources = v1.ResourceRequirements{Requests: list, Limits: list}
			}
			if _, err := pods(n.api).UpdateSub(t.Context(), "resize", pod); err != nil {
				t.Fatal(err)
			}
			p := n.pod("web")
			if !core.PodReady(p) || core.PodCondition(&p.Status, v1.PodResizePending) != nil || core.PodCondition(&p.Status, v1.PodResizeInProgress) != nil {
				t.Errorf("got the conditions %+v", p.Status.Conditions)
			}
			for i, size := range sizes {
				cs := p.Status.ContainerStatuses[i]
				for _, list := range []v1.ResourceList{cs.Resources.Limits, cs.Resources.Requests, cs.AllocatedResources} {
					if got := list.Cpu().String() + " " + list.Memory().String(); got != size || cs.RestartCount != 0 {
						t.Errorf("%s: got %s and %d restarts, want %s", cs.Name, got, cs.RestartCount, size)
					}
				}
			}
		}
	})
}

func TestProbesDecideAboutLifeAndReadiness(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var broken sync.Map
		n := newNode(t, fakecri.Options{Exec: func(c *runtimeapi.ContainerConfig, command []string) (string, int32) {
			if is, ok := broken.Load(command[0]); ok && is == true {
				return "it is broken", 1
			}
			return "", 0
		}})
		defer func() { n.end() }()
		createPod(t, n.api, "live", `{containers: [{name: c, image: x, livenessProbe: {exec: {command: [live]}, periodSeconds: 10, failureThreshold: 3}}]}`)
		createPod(t, n.api, "ready", `{containers: [{name: c, image: x, readinessProbe: {exec: {command: [ready]}, initialDelaySeconds: 30, periodSeconds: 5}}]}`)
		createPod(t, n.api, "never", `{containers: [{name: c, image: x, readinessProbe: {exec: {command: [never]}, periodSeconds: 5}}]}`)
		broken.Store("never", true)
		trace.Proves(t, "C-310")
		if p := n.after(29*time.Second, "ready"); core.PodReady(p) {
			t.Error("ready before its delay was over")
		}
		if p := n.after(2*time.Second, "ready"); !core.PodReady(p) || p.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("not ready: %+v", p.Status)
		}
		trace.Proves(t, "PLC-022", "C-304")
		if p := n.after(4*time.Minute, "live"); p.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("healthy container: got %d restarts", p.Status.ContainerStatuses[0].RestartCount)
		}
		trace.Proves(t, "C-311")
		if p := n.pod("never"); core.PodReady(p) || p.Status.Phase != v1.PodRunning || p.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("never ready: got %+v", p.Status)
		}
		n.api.TakeEvents()
		broken.Store("live", true)
		broken.Store("ready", true)
		trace.Proves(t, "PLC-022")
		if p := n.after(16*time.Second, "ready"); core.PodReady(p) {
			t.Error("still ready")
		}
		broken.Store("live", false)
		if p := n.after(15*time.Second, "live"); p.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("two failures: got %d restarts, want none", p.Status.ContainerStatuses[0].RestartCount)
		}
		broken.Store("live", true)
		trace.Proves(t, "PLC-021", "PLC-028", "C-308")
		if p := n.after(31*time.Second, "live"); p.Status.ContainerStatuses[0].RestartCount != 1 {
			t.Errorf("three failures: got %d restarts, want 1", p.Status.ContainerStatuses[0].RestartCount)
		}
		if got := strings.Join(n.api.TakeEvents(), "\n"); !strings.Contains(got, "live spec.containers{c} Warning Unhealthy: Liveness probe failed: it is broken") ||
			!strings.Contains(got, "live spec.containers{c} Normal Killing: Container c failed liveness probe, will be restarted") {
			t.Errorf("events: %s", got)
		}
	})
}

func TestContainerThatDoesNotListenIsKilledAfterItsGrace(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var hung atomic.Int32
		n := newNode(t, fakecri.Options{
			Program: func(*runtimeapi.ContainerConfig) fakecri.Program { return fakecri.Program{TermAfter: -1} },
			Exec: func(*runtimeapi.ContainerConfig, []string) (string, int32) {
				hung.Add(1)
				time.Sleep(20 * time.Second)
				return "", 0
			},
		})
		defer func() { n.end() }()
		createPod(t, n.api, "deaf", `{containers: [{name: c, image: x}]}`)
		createPod(t, n.api, "hook", `{containers: [{name: c, image: x, lifecycle: {preStop: {exec: {command: [x]}}}}]}`)
		n.pod("deaf")
		deletePod(t, n.api, "deaf", 30)
		deletePod(t, n.api, "hook", 30)
		n.after(19*time.Second, "hook")
		held := n.cri.Calls("StopContainer")
		n.after(2*time.Second, "hook")
		trace.Proves(t, "HOOK-008")
		if told := n.cri.Calls("StopContainer"); held != 1 || told != 2 {
			t.Errorf("containers told to stop: got %d while the hook ran, %d when it had ended, want that of the other pod, and both", held, told)
		}
		trace.Proves(t, "POD-025")
		if n.after(8*time.Second, "deaf") == nil || n.pod("hook") == nil || hung.Load() != 1 {
			t.Error("gone before the grace period was over")
		}
		trace.Proves(t, "POD-029", "POD-041")
		if p := n.after(2*time.Second, "deaf"); p != nil {
			t.Errorf("left after the grace period: %+v", p.Status)
		}
		if p := n.pod("hook"); p != nil {
			t.Errorf("left after hook and grace period: %+v", p.Status)
		}
	})
}

func TestNewAgentKeepsReadinessAndStartupOfWhatRuns(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var broken atomic.Bool
		n := newNode(t, fakecri.Options{Exec: func(_ *runtimeapi.ContainerConfig, command []string) (string, int32) {
			if command[0] == "startup" && broken.Load() {
				return "", 1
			}
			time.Sleep(500 * time.Millisecond)
			return "", 0
		}})
		defer func() { n.end() }()
		createPod(t, n.api, "web", `{containers: [{name: c, image: x, startupProbe: {exec: {command: [startup]}, failureThreshold: 1}, readinessProbe: {exec: {command: [ready]}}}]}`)
		if p := n.after(time.Minute, "web"); !core.PodReady(p) {
			t.Fatalf("got %+v", p.Status)
		}
		n.end()
		broken.Store(true)
		writes := n.api.Updates("pods/status")
		n.run()
		if p := n.after(time.Minute, "web"); !core.PodReady(p) || p.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("after a restart of the agent: got %+v", p.Status)
		}
		if got := n.api.Updates("pods/status"); got != writes {
			t.Errorf("status writes after a restart of the agent: got %d, want none", got-writes)
		}
	})
}

func TestDeletedNodeIsRegisteredAgain(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNode(t, fakecri.Options{})
		defer func() { n.end() }()
		nodes := client.For(n.api, core.Nodes)
		if err := nodes.Delete(t.Context(), "", "n1", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(11 * time.Second)
		synctest.Wait()
		if node, err := nodes.Get(t.Context(), "", "n1"); err != nil || node.Status.Capacity.Cpu().Value() != 4 {
			t.Errorf("got %+v, %v", node, err)
		}
	})
}

func TestLostSandboxIsMadeAnew(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNode(t, fakecri.Options{})
		defer func() { n.end() }()
		createPod(t, n.api, "web", `{initContainers: [{name: i, image: x, command: ["true"]}], containers: [{name: c, image: x}]}`)
		before := n.pod("web")
		n.cri.LoseSandbox("default/web")
		p := n.after(15*time.Second, "web")
		trace.Proves(t, "INIT-043")
		if !core.PodReady(p) || p.Status.PodIP == before.Status.PodIP || p.Status.ContainerStatuses[0].RestartCount != 1 || p.Status.InitContainerStatuses[0].RestartCount != 1 {
			t.Errorf("got %+v", p.Status)
		}
		if got := strings.Join(n.api.TakeEvents(), "\n"); !strings.Contains(got, "web Normal SandboxChanged: Pod sandbox changed, it will be killed and re-created.") {
			t.Errorf("events: %s", got)
		}
	})
}

func TestEphemeralContainerJoinsARunningPod(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNode(t, fakecri.Options{})
		defer func() { n.end() }()
		createPod(t, n.api, "web", `{containers: [{name: c, image: x}]}`)
		n.pod("web")
		const patch = `{"spec":{"ephemeralContainers":[{"name":"d1","image":"debug","command":["sleep","10"],"targetContainerName":"c"}]}}`
		if _, err := pods(n.api).Patch(t.Context(), "default", "web", "ephemeralcontainers", client.Patch{Type: types.StrategicMergePatchType, Data: []byte(patch)}); err != nil {
			t.Fatal(err)
		}
		one := n.pod("web").Status.EphemeralContainerStatuses
		trace.Proves(t, "EPH-001", "C-262/runs")
		if len(one) != 1 || one[0].State.Running == nil {
			t.Errorf("the first: got %+v, want one that runs", one)
		}
		pod := getPod(t, n.api, "web").DeepCopy()
		pod.Spec.EphemeralContainers = append(pod.Spec.EphemeralContainers, v1.EphemeralContainer{
			EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "d2", Image: "debug", Command: []string{"sleep", "9999"}}, TargetContainerName: "c",
		})
		if _, err := pods(n.api).UpdateSub(t.Context(), "ephemeralcontainers", pod); err != nil {
			t.Fatal(err)
		}
		two := n.pod("web").Status.EphemeralContainerStatuses
		trace.Proves(t, "C-261")
		if len(one) != 1 || len(two) != 2 || two[1].State.Running == nil {
			t.Errorf("the second: got %+v, want two", two)
		}
		p := n.after(30*time.Second, "web")
		trace.Proves(t, "EPH-005")
		if two := p.Status.EphemeralContainerStatuses; two[0].State.Terminated == nil || two[0].RestartCount != 0 || two[1].State.Running == nil || !core.PodReady(p) {
			t.Errorf("after the end of the first: got %+v", two)
		}
	})
}

func TestPullFailuresAreToldAndOvercome(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var down atomic.Bool
		down.Store(true)
		n := newNode(t, fakecri.Options{Pull: func(context.Context, string) error {
			if down.Load() {
				return errors.New("no such host")
			}
			return nil
		}})
		defer func() { n.end() }()
		createPod(t, n.api, "web", `{containers: [{name: c, image: "r.example/web:1"}]}`)
		if w := n.pod("web").Status.ContainerStatuses[0].State.Waiting; w == nil || w.Reason != "ErrImagePull" || w.Message != "no such host" {
			t.Errorf("at first: got %+v", w)
		}
		if w := n.after(5*time.Second, "web").Status.ContainerStatuses[0].State.Waiting; w == nil || w.Reason != "ImagePullBackOff" {
			t.Errorf("then: got %+v", w)
		}
		down.Store(false)
		trace.Proves(t, "PLC-044")
		if p := n.after(6*time.Second, "web"); !core.PodReady(p) {
			t.Errorf("when the registry is back: got %+v", p.Status)
		}
	})
}

// eventless is a runtime from before CRI had events.
type eventless struct{ *fakecri.Runtime }

func (eventless) GetContainerEvents(context.Context, *runtimeapi.GetEventsRequest, ...grpc.CallOption) (grpc.ServerStreamingClient[runtimeapi.ContainerEventResponse], error) {
	return nil, status.Error(codes.Unimplemented, "unknown method GetContainerEvents")
}

func TestRuntimesWithoutEventsAreLookedAt(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := &testNode{t: t, api: newMemAPI(t), cri: fakecri.New(fakecri.Options{})}
		n.with = func(o *Options) { o.Runtime = eventless{n.cri} }
		n.run()
		defer func() { n.end() }()
		createPod(t, n.api, "web", `{restartPolicy: Never, containers: [{name: c, image: x}]}`)
		if p := n.after(2*time.Second, "web"); !core.PodReady(p) {
			t.Fatalf("got %+v", p.Status)
		}
		n.cri.Exit("default/web", "c", 3, "Error")
		if p := n.after(2*time.Second, "web"); p.Status.Phase != v1.PodFailed || p.Status.ContainerStatuses[0].State.Terminated.ExitCode != 3 {
			t.Errorf("got %+v", p.Status)
		}
	})
}

func TestDeletionDuringAPullDoesNotWaitForIt(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNode(t, fakecri.Options{Pull: func(ctx context.Context, _ string) error {
			<-ctx.Done()
			return ctx.Err()
		}})
		defer func() { n.end() }()
		createPod(t, n.api, "web", `{containers: [{name: c, image: x}]}`)
		n.pod("web")
		deletePod(t, n.api, "web", 30)
		if p := n.after(time.Second, "web"); p != nil {
			t.Errorf("left: %+v", p.Status)
		}
	})
}

func TestReplacedPodOfTheSameNameIsAnotherPod(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNode(t, fakecri.Options{Program: func(*runtimeapi.ContainerConfig) fakecri.Program { return fakecri.Program{TermAfter: -1} }})
		defer func() { n.end() }()
		first := createPod(t, n.api, "db-0", `{containers: [{name: c, image: x}]}`)
		n.pod("db-0")
		deletePod(t, n.api, "db-0", 0)
		second := createPod(t, n.api, "db-0", `{containers: [{name: c, image: x}]}`)
		if p := n.after(10*time.Second, "db-0"); p.UID != second.UID || p.UID == first.UID || !core.PodReady(p) {
			t.Errorf("got %s %+v", p.UID, p.Status)
		}
		if list, _ := n.cri.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{}); len(list.Items) != 1 {
			t.Errorf("sandboxes: %v", list.Items)
		}
	})
}

// TestManySimulatedNodesRunTheirPods starts 200 with 5 each at once, which soon do not beat in step.
func TestManySimulatedNodesRunTheirPods(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	synctest.Test(t, func(t *testing.T) {
		api := newMemAPI(t)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		const nodes, podsEach = 200, 5
		for i := range nodes {
			fake := fakecri.New(fakecri.Options{})
			a, err := New(Options{
				NodeName: "n" + strconv.Itoa(i), Transport: api, Runtime: fake, Images: fake, Simulated: true, Log: slog.New(slog.DiscardHandler),
				Capacity: v1.ResourceList{v1.ResourceCPU: resource.MustParse("4"), v1.ResourceMemory: resource.MustParse("8Gi")},
			})
			if err != nil {
				t.Fatal(err)
			}
			go func() { done <- a.Run(ctx) }()
			for j := range podsEach {
				pod := &v1.Pod{Spec: v1.PodSpec{NodeName: "n" + strconv.Itoa(i), Containers: []v1.Container{{Name: "c", Image: "x"}}}}
				pod.Namespace, pod.Name = "default", fmt.Sprintf("p%d-%d", i, j)
				if _, err := pods(api).Create(t.Context(), pod); err != nil {
					t.Fatal(err)
				}
			}
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		running := 0
		for _, pod := range client.Cached(api, core.Pods, "").List("", nil) {
			if core.PodReady(pod) {
				running++
			}
		}
		if running != nodes*podsEach {
			t.Errorf("ready pods: got %d, want %d", running, nodes*podsEach)
		}
		reported := map[time.Time]int{}
		for _, node := range client.Cached(api, core.Nodes, "").List("", nil) {
			reported[core.NodeCondition(&node.Status, v1.NodeReady).LastHeartbeatTime.Time]++
		}
		if len(reported) < 10 { // of the 30 looks of five minutes
			t.Errorf("nodes that were started together still write their status together: %v", reported)
		}
		cancel()
		for range nodes {
			<-done
		}
	})
}
