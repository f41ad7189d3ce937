package kubelet

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/kubelet/evict"
	"github.com/kemudi/kemudi/internal/kubelet/fakecri"
	"github.com/kemudi/kemudi/internal/kubelet/podstep"
	"github.com/kemudi/kemudi/internal/trace"
)

// meter is what a simulated node is made to believe of its disk, memory and processes.
type meter struct {
	sync.Mutex
	node      evict.Readings
	pods      map[string]evict.Storage
	processes map[string]int64
}

func (m *meter) set(f func()) {
	m.Lock()
	defer m.Unlock()
	f()
}

func (m *meter) Pod(_ context.Context, pod *v1.Pod) (evict.Storage, error) {
	m.Lock()
	defer m.Unlock()
	return m.pods[pod.Name], nil
}

func (m *meter) Processes(pod *v1.Pod) (int64, error) {
	m.Lock()
	defer m.Unlock()
	return m.processes[pod.Name], nil
}

func (m *meter) Node(context.Context) (evict.Readings, error) {
	m.Lock()
	defer m.Unlock()
	return m.node, nil
}

func newMeteredNode(t *testing.T, m *meter) *testNode {
	n := &testNode{t: t, api: newMemAPI(t), cri: fakecri.New(fakecri.Options{Program: deaf}), with: func(o *Options) { o.fake.gauges = m }}
	n.run()
	return n
}

// evicted checks that the pod has been evicted with the message.
func evicted(t *testing.T, n *testNode, p *v1.Pod, message string) {
	t.Helper()
	if p.Status.Phase != v1.PodFailed || p.Status.Reason != "Evicted" || p.Status.Message != message {
		t.Errorf("%s: got %s %s %q, want Failed Evicted %q", p.Name, p.Status.Phase, p.Status.Reason, p.Status.Message, message)
	}
	c := core.PodCondition(&p.Status, v1.DisruptionTarget)
	if c == nil || c.Status != v1.ConditionTrue || c.Reason != "TerminationByKubelet" || c.Message != message {
		t.Errorf("%s: condition: got %+v", p.Name, c)
	}
	if events := n.api.TakeEvents(); !slices.ContainsFunc(events, func(e string) bool {
		return strings.HasPrefix(e, p.Name+" Warning Evicted: "+message)
	}) {
		t.Errorf("%s: no event of the eviction in %q", p.Name, events)
	}
}

func TestPodThatHoldsMoreThanItMayIsEvicted(t *testing.T) {
	trace.Proves(t, "PODO-015", "PODO-017")
	inBubble(t, func(t *testing.T) {
		m := &meter{pods: map[string]evict.Storage{}}
		n := newMeteredNode(t, m)
		defer func() { n.end() }()
		createPod(t, n.api, "web", `{terminationGracePeriodSeconds: 600, volumes: [{name: v, emptyDir: {sizeLimit: 1Mi}}], containers: [{name: c, image: x}]}`)
		createPod(t, n.api, "free", `{volumes: [{name: v, emptyDir: {}}], containers: [{name: c, image: x}]}`)
		n.pod("web")
		full := evict.Storage{Volumes: map[string]int64{"v": 2 << 20}}
		m.set(func() { m.pods["web"], m.pods["free"] = full, full })
		if p := n.after(9*time.Second, "web"); p.Status.Phase != v1.PodRunning {
			t.Errorf("at first: got %s", p.Status.Phase)
		}
		// It does not listen, and is killed 2 s later all the same.
		p := n.after(4*time.Second, "web")
		evicted(t, n, p, `Usage of EmptyDir volume "v" exceeds the limit "1Mi". `)
		if st := p.Status.ContainerStatuses[0].State.Terminated; st == nil || st.ExitCode != 137 {
			t.Errorf("its container: got %+v", p.Status.ContainerStatuses[0].State)
		}
		if p := n.after(time.Minute, "free"); p.Status.Phase != v1.PodRunning {
			t.Errorf("pod without limits: got %s", p.Status.Phase)
		}
		deletePod(t, n.api, "web", 0)
		if p := n.after(time.Second, "web"); p != nil {
			t.Errorf("deleted after its eviction: left %+v", p.Status)
		}
	})
}

func TestPodsThatUseUpWhatIsNotReservedLoseOneOfThem(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		m := &meter{node: evict.Readings{evict.MemoryAvailable: {Available: 4 << 30, Capacity: 8 << 30}, evict.PodsMemory: {Available: 1 << 30, Capacity: 4 << 30}}}
		n := newMeteredNode(t, m)
		defer func() { n.end() }()
		createPod(t, n.api, "greedy", `{containers: [{name: c, image: x}]}`)
		n.pod("greedy")
		m.set(func() {
			m.node = evict.Readings{evict.MemoryAvailable: {Available: 4 << 30, Capacity: 8 << 30}, evict.PodsMemory: {Available: 50 << 20, Capacity: 4 << 30}}
		})
		evicted(t, n, n.after(13*time.Second, "greedy"), "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. Container c was using 4Mi, request is 0, has larger consumption of memory. ")
		n.tells("/metrics", `kubelet_evictions\{eviction_signal="allocatableMemory.available"\} 1`)
	})
	s := Settings{Enforce: []string{enforcePods}, KubeReserved: Reserved{v1.ResourceMemory: resource.MustParse("1Gi")}}
	capacity := v1.ResourceList{v1.ResourceMemory: resource.MustParse("4Gi")}
	if got := s.heldMemory(capacity); got != 3<<30 {
		t.Errorf("what pods are held to: got %d, want 3 GiB", got)
	}
	if s.Enforce = []string{enforceNone}; s.heldMemory(capacity) != 0 {
		t.Errorf("where nothing is enforced: got %d", s.heldMemory(capacity))
	}
}

func TestNodeThatRunsOutOfMemoryLetsOnePodGoAfterAnother(t *testing.T) {
	trace.Proves(t, "NODE-028")
	inBubble(t, func(t *testing.T) {
		m := &meter{node: evict.Readings{evict.MemoryAvailable: {Available: 1 << 30, Capacity: 8 << 30}}}
		n := newMeteredNode(t, m)
		defer func() { n.end() }()
		createPod(t, n.api, "modest", `{containers: [{name: c, image: x, resources: {requests: {memory: 100Mi}}}]}`)
		createPod(t, n.api, "greedy", `{containers: [{name: c, image: x}]}`)
		createPod(t, n.api, "vital", `{priority: 2000001000, containers: [{name: c, image: x}]}`)
		n.pod("greedy")
		m.set(func() {
			m.node = evict.Readings{evict.MemoryAvailable: {Available: 50 << 20, Capacity: 8 << 30}}
		})
		p := n.after(13*time.Second, "greedy")
		evicted(t, n, p, "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. Container c was using 4Mi, request is 0, has larger consumption of memory. ")
		trace.Proves(t, "NODE-011/under")
		if c := n.condition(v1.NodeMemoryPressure); c.Status != v1.ConditionTrue || c.Reason != "KubeletHasInsufficientMemory" {
			t.Errorf("condition of the node: got %+v", c)
		}
		// It was not enough: the next one goes.
		if p := n.after(3*time.Second, "modest"); p.Status.Phase != v1.PodFailed {
			t.Errorf("modest: got %s", p.Status.Phase)
		}
		if p := n.after(time.Minute, "vital"); p.Status.Phase != v1.PodRunning {
			t.Errorf("vital: got %s", p.Status.Phase)
		}
		// As long as the condition holds, pods that ask for nothing are not taken on.
		createPod(t, n.api, "late", `{containers: [{name: c, image: x}]}`)
		createPod(t, n.api, "burst", `{containers: [{name: c, image: x, resources: {requests: {memory: 1Mi}}}]}`)
		if p := n.pod("late"); p.Status.Phase != v1.PodFailed || p.Status.Reason != "Evicted" || p.Status.Message != "Pod was rejected: The node had condition: [MemoryPressure]. " {
			t.Errorf("late: got %+v", p.Status)
		}
		if p := n.pod("burst"); p.Status.Phase != v1.PodRunning {
			t.Errorf("burst: got %+v", p.Status)
		}
		m.set(func() {
			m.node = evict.Readings{evict.MemoryAvailable: {Available: 1 << 30, Capacity: 8 << 30}}
		})
		n.after(4*time.Minute, "vital")
		if c := n.condition(v1.NodeMemoryPressure); c.Status != v1.ConditionTrue {
			t.Error("the condition has gone before its time")
		}
		n.after(90*time.Second, "vital")
		if c := n.condition(v1.NodeMemoryPressure); c.Status != v1.ConditionFalse || c.Reason != "KubeletHasSufficientMemory" {
			t.Errorf("five minutes after: got %+v", c)
		}
		n.tells("/metrics", `kubelet_evictions\{eviction_signal="memory.available"\} 2`)
		events := strings.Join(n.api.TakeEvents(), "\n")
		for _, want := range []string{"n1 Normal NodeHasSufficientMemory: Node n1 status is now: NodeHasSufficientMemory"} {
			if !strings.Contains(events, want) {
				t.Errorf("events: no %q in\n%s", want, events)
			}
		}
	})
}

func TestPodIsEvictedOnceThoughTheAPIDoesNotLearnIt(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		m := &meter{node: evict.Readings{evict.MemoryAvailable: {Available: 1 << 30, Capacity: 8 << 30}}}
		n := newMeteredNode(t, m)
		defer func() { n.end() }()
		createPod(t, n.api, "greedy", `{containers: [{name: c, image: x}]}`)
		createPod(t, n.api, "vital", `{priority: 2000001000, containers: [{name: c, image: x}]}`)
		n.pod("greedy")
		n.api.RefuseWith(func(r *client.Request) error {
			if r.Sub == "status" {
				return errors.New("cut off")
			}
			return nil
		})
		m.set(func() {
			m.node = evict.Readings{evict.MemoryAvailable: {Available: 50 << 20, Capacity: 8 << 30}}
		})
		if p := n.after(time.Minute, "greedy"); p.Status.Phase != v1.PodRunning {
			t.Errorf("nothing could be written: greedy is %s", p.Status.Phase)
		}
		n.tells("/metrics", `kubelet_evictions\{eviction_signal="memory.available"\} 1`)
		n.api.RefuseWith(nil)
		if p := n.after(time.Minute, "greedy"); p.Status.Reason != "Evicted" {
			t.Errorf("when it can be written again: got %+v", p.Status)
		}
	})
}

func TestPodsGoInTheirOwnTimeWhenASoftThresholdHasBeenPassedForAWhile(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		m := &meter{node: evict.Readings{evict.MemoryAvailable: {Available: 1 << 30, Capacity: 8 << 30}}}
		n := &testNode{t: t, api: newMemAPI(t), cri: fakecri.New(fakecri.Options{Program: deaf}), with: func(o *Options) {
			o.fake.gauges = m
			if err := errors.Join(o.Settings.Soft.Thresholds.Set("memory.available<500Mi"), o.Settings.Soft.Grace.Set("memory.available=1m30s"), o.Settings.MinReclaim.Set("memory.available=100Mi")); err != nil {
				t.Error(err)
			}
			o.Settings.Soft.MaxPodGrace = 20
		}}
		n.run()
		defer func() { n.end() }()
		for name, grace := range map[string]string{"a": "60", "b": "5"} {
			createPod(t, n.api, name, `{terminationGracePeriodSeconds: `+grace+`, containers: [{name: c, image: x}]}`)
		}
		n.pod("a")
		m.set(func() { m.node = evict.Readings{evict.MemoryAvailable: {Available: 300 << 20, Capacity: 8 << 30}} })
		if p := n.after(85*time.Second, "a"); p.Status.Phase != v1.PodRunning {
			t.Errorf("before the time: got %s", p.Status.Phase)
		}
		if c := n.condition(v1.NodeMemoryPressure); c.Status != v1.ConditionTrue {
			t.Errorf("condition of the node: got %+v, want that it is under pressure at once", c)
		}
		if p := n.after(20*time.Second, "a"); p.Status.Phase != v1.PodRunning || p.Status.Reason != "" {
			t.Errorf("while it has time: got %s %s", p.Status.Phase, p.Status.Reason)
		}
		m.set(func() { m.node = evict.Readings{evict.MemoryAvailable: {Available: 550 << 20, Capacity: 8 << 30}} }) // not as much as is wanted
		p := n.after(16*time.Second, "a")
		evicted(t, n, p, "The node was low on resource: memory. Threshold quantity: 500Mi, available: 300Mi. Container c was using 4Mi, request is 0, has larger consumption of memory. ")
		if p := n.after(9*time.Second, "b"); p.Status.Phase != v1.PodFailed {
			t.Errorf("the next one, which has less time for itself: got %s", p.Status.Phase)
		}
	})
}

func TestNobodyElseGoesWhileAPodHasTimeToEnd(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		m := &meter{node: evict.Readings{evict.MemoryAvailable: {Available: 1 << 30, Capacity: 8 << 30}}}
		n, broken := &testNode{t: t, api: newMemAPI(t), cri: fakecri.New(fakecri.Options{Program: deaf})}, new(atomic.Bool)
		n.with = func(o *Options) {
			o.Runtime = stubborn{n.cri, broken}
			o.fake.gauges = m
			if err := errors.Join(o.Settings.Soft.Thresholds.Set("memory.available<500Mi"), o.Settings.Soft.Grace.Set("memory.available=30s")); err != nil {
				t.Error(err)
			}
			o.Settings.Soft.MaxPodGrace = 100
		}
		n.run()
		defer func() { n.end() }()
		createPod(t, n.api, "a", `{terminationGracePeriodSeconds: 100, containers: [{name: c, image: x}]}`)
		createPod(t, n.api, "b", `{terminationGracePeriodSeconds: 1, containers: [{name: c, image: x, resources: {requests: {memory: 100Mi}}}]}`)
		n.pod("a")
		broken.Store(true)
		m.set(func() { m.node = evict.Readings{evict.MemoryAvailable: {Available: 300 << 20, Capacity: 8 << 30}} })
		n.after(40*time.Second, "a") // it is told to end
		if p := n.after(130*time.Second, "b"); p.Status.Phase != v1.PodRunning {
			t.Errorf("while the one before has time, and the runtime half as much again: b is %s", p.Status.Phase)
		}
		overdue := func() bool {
			return slices.Contains(n.api.TakeEvents(), "a Warning ExceededGracePeriod: Container runtime did not kill the pod within specified grace period.")
		}
		if overdue() {
			t.Error("before its time is up the pod is said to be overdue")
		}
		if p := n.after(30*time.Second, "a"); !overdue() {
			t.Errorf("the runtime does not end it: no event of that, and the pod is %s", p.Status.Phase)
		}
		broken.Store(false)
		if p := n.after(10*time.Minute, "a"); p.Status.Reason != "Evicted" {
			t.Errorf("when the runtime works again: got %s %s", p.Status.Phase, p.Status.Reason)
		}
	})
}

func TestNodeThatRunsOutOfProcessesEndsWhoHasMost(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		m := &meter{node: evict.Readings{evict.PIDAvailable: {Available: 9000, Capacity: 32768}}, processes: map[string]int64{"many": 20000, "few": 12, "vital": 30000}}
		n := &testNode{t: t, api: newMemAPI(t), cri: fakecri.New(fakecri.Options{Program: deaf}), with: func(o *Options) {
			o.fake.gauges = m
			if err := o.Settings.Eviction.Set("pid.available<10%"); err != nil {
				t.Error(err)
			}
		}}
		n.run()
		defer func() { n.end() }()
		createPod(t, n.api, "many", `{containers: [{name: c, image: x, resources: {requests: {memory: 1Gi}}}]}`)
		createPod(t, n.api, "few", `{containers: [{name: c, image: x}]}`)
		createPod(t, n.api, "vital", `{priority: 2000001000, containers: [{name: c, image: x}]}`)
		n.pod("many")
		m.set(func() { m.node = evict.Readings{evict.PIDAvailable: {Available: 1001, Capacity: 32768}} })
		p := n.after(13*time.Second, "many")
		evicted(t, n, p, "The node was low on resource: pids. Threshold quantity: 3276, available: 1001. ")
		trace.Proves(t, "NODE-012/under")
		if c := n.condition(v1.NodePIDPressure); c.Status != v1.ConditionTrue || c.Reason != "KubeletHasInsufficientPID" {
			t.Errorf("condition of the node: got %+v", c)
		}
		createPod(t, n.api, "late", `{containers: [{name: c, image: x, resources: {requests: {memory: 1Mi}}}]}`)
		if p := n.pod("late"); p.Status.Reason != "Evicted" || p.Status.Message != "Pod was rejected: The node had condition: [PIDPressure]. " {
			t.Errorf("late: got %+v", p.Status)
		}
		// It was not enough: the next one goes, but never what the cluster depends on.
		if p := n.after(3*time.Second, "few"); p.Status.Phase != v1.PodFailed {
			t.Errorf("few: got %s", p.Status.Phase)
		}
		m.set(func() { m.node = evict.Readings{evict.PIDAvailable: {Available: 21000, Capacity: 32768}} })
		if p := n.after(10*time.Minute, "vital"); p.Status.Phase != v1.PodRunning {
			t.Errorf("vital: got %s", p.Status.Phase)
		}
		if c := n.condition(v1.NodePIDPressure); c.Status != v1.ConditionFalse {
			t.Errorf("ten minutes after: got %+v", c)
		}
	})
}

func TestNodeThatRunsOutOfDiskRemovesImagesFirst(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		low := evict.Readings{evict.NodeFSAvailable: {Available: 4, Capacity: 100}}
		m := &meter{node: evict.Readings{}, pods: map[string]evict.Storage{
			"big": {Containers: map[string]int64{"c": 5 << 20}}, "small": {Containers: map[string]int64{"c": 1 << 20}},
		}}
		n := newMeteredNode(t, m)
		defer func() { n.end() }()
		createPod(t, n.api, "old", `{restartPolicy: Never, containers: [{name: c, image: "unused:1", command: ["true"]}]}`)
		createPod(t, n.api, "big", `{containers: [{name: c, image: "used:1"}]}`)
		createPod(t, n.api, "small", `{containers: [{name: c, image: "used:1"}]}`)
		n.pod("old")
		deletePod(t, n.api, "old", 0)
		n.pod("old")
		m.set(func() { m.node = low })
		p := n.after(13*time.Second, "big")
		if got := n.cri.Images(); !slices.Equal(got, []string{"used:1"}) {
			t.Errorf("images: got %v, want only the used one", got)
		}
		m.set(func() { m.node = evict.Readings{} })
		evicted(t, n, p, "The node was low on resource: ephemeral-storage. Threshold quantity: 5, available: 4. Container c was using 5Mi, request is 0, has larger consumption of ephemeral-storage. ")
		trace.Proves(t, "NODE-013/under")
		if c := n.condition(v1.NodeDiskPressure); c.Status != v1.ConditionTrue || c.Reason != "KubeletHasDiskPressure" {
			t.Errorf("condition of the node: got %+v", c)
		}
	})
}

func TestNodeThatRunsOutOfInodesEndsWhoHasMostFiles(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		m := &meter{node: evict.Readings{}, pods: map[string]evict.Storage{
			"files": {Containers: map[string]int64{"c": 1 << 20}, Inodes: 5000}, "bytes": {Containers: map[string]int64{"c": 5 << 30}, Inodes: 10},
		}}
		n := newMeteredNode(t, m)
		defer func() { n.end() }()
		createPod(t, n.api, "files", `{containers: [{name: c, image: x}]}`)
		createPod(t, n.api, "bytes", `{containers: [{name: c, image: x}]}`)
		n.pod("files")
		m.set(func() { m.node = evict.Readings{evict.NodeFSInodes: {Available: 4, Capacity: 100}} })
		n.after(13*time.Second, "files")
		var got []string
		for _, e := range n.api.TakeEvents() {
			if name, text, ok := strings.Cut(e, " Warning Evicted: "); ok {
				got = append(got, name)
				if want := "The node was low on resource: inodes. Threshold quantity: 5, available: 4. map[starved_resource:inodes]"; text != want {
					t.Errorf("%s: got %q, want %q", name, text, want)
				}
			}
		}
		if want := []string{"files", "bytes"}; !slices.Equal(got, want) { // it was not enough
			t.Errorf("evicted: got %v, want %v", got, want)
		}
	})
}

func TestProgramsReadOfAnEventWhatAnEvictionWasFor(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		m := &meter{node: evict.Readings{}, pods: map[string]evict.Storage{}}
		n := newMeteredNode(t, m)
		defer func() { n.end() }()
		createPod(t, n.api, "greedy", `{containers: [{name: a, image: x, resources: {requests: {memory: 1Gi}}}, {name: b, image: x}, {name: c, image: x}]}`)
		createPod(t, n.api, "full", `{volumes: [{name: v, emptyDir: {sizeLimit: 1Mi}}], containers: [{name: c, image: x, resources: {requests: {memory: 1Gi}}}]}`)
		n.pod("full")
		m.set(func() {
			m.node = evict.Readings{evict.MemoryAvailable: {Available: 50 << 20, Capacity: 8 << 30}}
			m.pods["full"] = evict.Storage{Volumes: map[string]int64{"v": 2 << 20}}
		})
		n.after(13*time.Second, "greedy")
		m.set(func() { m.node = evict.Readings{} })
		n.after(13*time.Second, "full")
		events := strings.Join(n.api.TakeEvents(), "\n")
		for _, want := range []string{
			"has larger consumption of memory. map[offending_containers:b,c offending_containers_usage:4Mi,4Mi starved_resource:memory]",
			"full Warning Evicted: Usage of EmptyDir volume \"v\" exceeds the limit \"1Mi\". \n", // that has no annotations, as upstream's
		} {
			if !strings.Contains(events+"\n", want) {
				t.Errorf("events: no %q in\n%s", want, events)
			}
		}
	})
}

// condition waits until nothing moves and returns the node's condition.
func (n *testNode) condition(kind v1.NodeConditionType) v1.NodeCondition {
	n.t.Helper()
	n.pod("none")
	node, err := client.For(n.api, core.Nodes).Get(n.t.Context(), "", "n1")
	if err != nil {
		n.t.Fatal(err)
	}
	if c := core.NodeCondition(&node.Status, kind); c != nil {
		return *c
	}
	return v1.NodeCondition{}
}

func TestPodThatIsGoneIsNotWaitedFor(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newMeteredNode(t, &meter{})
		defer func() { n.end() }()
		if n.agent.pods.Evict("none", podstep.Eviction{Message: "no room"}) != nil {
			t.Error("evicted a pod that is not there")
		}
	})
}
