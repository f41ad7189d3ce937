package kubelet

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	podapi "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/kubelet/fakecri"
	"github.com/kemudi/kemudi/internal/kubelet/fakemachine"
	"github.com/kemudi/kemudi/internal/kubelet/memory"
	"github.com/kemudi/kemudi/test/wait"
)

// pinningNode is a node with a machine of two NUMA nodes, each of two cores with two processors and a gigabyte.
func pinningNode(t *testing.T, s Settings) *testNode {
	t.Helper()
	machine, root := fakemachine.New(t, fakemachine.Shape{Sockets: 2, Cores: 2, Threads: 2, Memory: 1024}), t.TempDir()
	n := &testNode{t: t, api: newMemAPI(t), cri: fakecri.New(fakecri.Options{}), with: func(o *Options) {
		o.Settings, o.RootDir, o.fake.machine = s, root, machine
		o.Capacity = v1.ResourceList{v1.ResourceCPU: resource.MustParse("8"), v1.ResourceMemory: resource.MustParse("2Gi")}
	}}
	n.run()
	return n
}

func oneReserved(p Pinning) Settings {
	return Settings{MaxPods: 20, SystemReserved: Reserved{v1.ResourceCPU: resource.MustParse("500m")}, Pinning: p}
}

// resources are what the runtime has been told last of a pod's container.
func (n *testNode) resources(pod, container string) *runtimeapi.LinuxContainerResources {
	n.t.Helper()
	for _, c := range n.pod(pod).Status.ContainerStatuses {
		if c.Name != container {
			continue
		}
		resp, err := n.cri.ContainerStatus(n.t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: strings.TrimPrefix(c.ContainerID, "fake://")})
		if err != nil {
			n.t.Fatal(err)
		}
		return resp.Status.Resources.Linux
	}
	n.t.Fatalf("pod %s has no container %s", pod, container)
	return nil
}

// runsOn fails the test unless a container runs on these processors.
func (n *testNode) runsOn(pod, container, want string) {
	n.t.Helper()
	if got := n.resources(pod, container).CpusetCpus; got != want {
		n.t.Errorf("container %s of pod %s runs on %q, want %q", container, pod, got, want)
	}
}

// guaranteed is the spec of a pod with one container of so many CPUs and so much memory.
func guaranteed(cpu, memory string) string {
	return fmt.Sprintf(`{containers: [{name: c, image: x, resources: {limits: {cpu: %s, memory: %s}, requests: {cpu: %s, memory: %s}}}]}`, cpu, memory, cpu, memory)
}

func TestContainersHaveProcessorsForThemselves(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := pinningNode(t, oneReserved(Pinning{CPUPolicy: "static"}))
		defer func() { n.end() }()
		createPod(t, n.api, "shared", `{containers: [{name: c, image: x}], initContainers: [{name: s, image: x, restartPolicy: Always}]}`)
		n.runsOn("shared", "c", "0-7")
		createPod(t, n.api, "own", guaranteed("2", "64Mi"))
		n.runsOn("own", "c", "1,5")
		if got := n.resources("own", "c"); got.CpuQuota != -1 || got.MemoryLimitInBytes != 64<<20 || got.CpuShares != 2048 {
			t.Errorf("what the container is held to: %v, want no quota of CPUs", got)
		}
		n.runsOn("shared", "c", "0,2-4,6-7")
		createPod(t, n.api, "fraction", guaranteed("1500m", "64Mi"))
		n.runsOn("fraction", "c", "0,2-4,6-7")
		if got := n.resources("fraction", "c").CpuQuota; got != 150000 {
			t.Errorf("quota of a container without processors for itself: %d, want 150000", got)
		}
		n.tells("/metrics", "kubelet_cpu_manager_exclusive_cpu_allocation_count 2", "kubelet_cpu_manager_pinning_requests_total 1", "kubelet_cpu_manager_shared_pool_size_millicores 5000")

		n.resize("own", "3", "64Mi")
		if c := core.PodCondition(&n.pod("own").Status, v1.PodResizePending); c == nil || c.Reason != "Infeasible" || c.Message != `Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"` {
			t.Errorf("resize: got %+v, want it infeasible", c)
		}
		n.resize("own", "2", "32Mi")
		if got := n.resources("own", "c"); got.MemoryLimitInBytes != 32<<20 || got.CpusetCpus != "1,5" || got.CpuQuota != -1 {
			t.Errorf("after a resize of memory: got %v", got)
		}

		n.end()
		n.run()
		n.runsOn("own", "c", "1,5")
		createPod(t, n.api, "later", guaranteed("2", "64Mi"))
		n.runsOn("later", "c", "2,6")
		n.runsOn("shared", "c", "0,3-4,7")
		n.cri.Exit("default/own", "c", 1, "")
		if n.after(time.Minute, "own").Status.ContainerStatuses[0].RestartCount != 1 {
			t.Error("the container has not been started again")
		}
		n.runsOn("own", "c", "1,5")

		deletePod(t, n.api, "own", 1)
		n.after(time.Minute, "own")
		n.runsOn("shared", "c", "0-1,3-5,7")
		createPod(t, n.api, "large", guaranteed("6", "64Mi"))
		if p := n.pod("large"); p.Status.Phase != v1.PodFailed {
			t.Errorf("more than there are: got %+v", p.Status)
		}
	})
}

func TestPodsThatCannotBePinnedAreRejected(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := pinningNode(t, oneReserved(Pinning{CPUPolicy: "static", CPUOptions: map[string]string{"full-pcpus-only": "true"}, TopologyPolicy: "single-numa-node"}))
		defer func() { n.end() }()
		for name, tc := range map[string]struct{ cpu, reason, message string }{
			"odd":  {"1", "SMTAlignmentError", "Pod was rejected: SMT Alignment Error: requested 1 cpus not multiple cpus per core = 2"},
			"wide": {"6", "TopologyAffinityError", "Pod was rejected: Resources cannot be allocated with Topology locality"},
		} {
			createPod(t, n.api, name, guaranteed(tc.cpu, "64Mi"))
			if p := n.pod(name); p.Status.Phase != v1.PodFailed || p.Status.Reason != tc.reason || p.Status.Message != tc.message {
				t.Errorf("pod %s: got %+v, want %s: %s", name, p.Status, tc.reason, tc.message)
			}
		}
		createPod(t, n.api, "good", guaranteed("4", "64Mi"))
		n.runsOn("good", "c", "2-3,6-7")
		createPod(t, n.api, "late", guaranteed("4", "64Mi")) // the sums say no before
		if p := n.pod("late"); p.Status.Reason != "OutOfcpu" {
			t.Errorf("pod late: got %+v, want it out of CPU", p.Status)
		}
		n.tells("/metrics", "kubelet_topology_manager_admission_errors_total 1", `kubelet_container_aligned_compute_resources_failure_count{boundary="physical_cpu",scope="container"} 1`,
			`kubelet_container_aligned_compute_resources_count{boundary="numa_node",scope="container"} 2`)
	})
}

func TestContainersHaveMemoryOfNodes(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := pinningNode(t, oneReserved(Pinning{MemoryPolicy: "Static"}))
		defer func() { n.end() }()
		createPod(t, n.api, "first", guaranteed("1", "700Mi"))
		n.pod("first") // so that it comes first
		createPod(t, n.api, "second", guaranteed("1", "700Mi"))
		n.pod("second")
		if a, b := n.resources("first", "c"), n.resources("second", "c"); a.CpusetMems != "0" || b.CpusetMems != "1" || a.CpusetCpus != "" || a.CpuQuota != 100000 {
			t.Errorf("got %v and %v, want memory of a node each, and nothing of processors", a, b)
		}
		createPod(t, n.api, "third", guaranteed("1", "500Mi"))
		if p := n.pod("third"); p.Status.Reason != "UnexpectedAdmissionError" || !strings.Contains(p.Status.Message, "no NUMA nodes with enough memory is available, which is unexpected") {
			t.Errorf("more than any node has left: got %+v", p.Status)
		}
		n.resize("first", "2", "500Mi")
		if c := core.PodCondition(&n.pod("first").Status, v1.PodResizePending); c == nil || c.Message != `Resize is infeasible for Guaranteed Pods alongside Memory Manager policy "Static"` {
			t.Errorf("resize: got %+v, want it infeasible", c)
		}
		n.tells("/metrics", "kubelet_memory_manager_pinning_requests_total 3", "kubelet_memory_manager_pinning_errors_total 1")
	})
}

func TestAnotherPolicyThanThatOfRunningContainersIsRefused(t *testing.T) {
	root := t.TempDir()
	start := func(s Settings) error {
		_, err := New(Options{
			NodeName: "n1", Transport: newMemAPI(t), Runtime: fakecri.New(fakecri.Options{}), Images: fakecri.New(fakecri.Options{}), Simulated: true,
			Capacity: v1.ResourceList{v1.ResourceCPU: resource.MustParse("8")}, Settings: s, Dirs: Dirs{RootDir: root},
			fake: fakes{machine: fakemachine.New(t, fakemachine.Shape{Cores: 4, Memory: 1024})}, Log: slog.New(slog.DiscardHandler),
		})
		return err
	}
	if err := start(Settings{}); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(root); err != nil || len(left) > 0 {
		t.Errorf("a node that pins nothing has written %v, %v", left, err)
	}
	if err := start(oneReserved(Pinning{CPUPolicy: "static", MemoryPolicy: "Static"})); err != nil {
		t.Fatal(err)
	}
	cpu, mem := filepath.Join(root, "cpu_manager_state"), filepath.Join(root, "memory_manager_state")
	want := `could not restore state from checkpoint: configured policy "none" differs from state checkpoint policy "static", please drain this node and delete the CPU manager checkpoint file "` + cpu + `" before restarting Kubelet`
	if err := start(Settings{}); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("other policy of CPUs: got %v, want %s", err, want)
	}
	if err := os.Remove(cpu); err != nil {
		t.Fatal(err)
	}
	want = `configured policy "None" differs from state checkpoint policy "Static", please drain this node and delete the memory manager checkpoint file "` + mem + `" before restarting Kubelet`
	if err := start(Settings{}); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("other policy of memory: got %v, want %s", err, want)
	}
}

func TestBadPinningIsRefused(t *testing.T) {
	t.Parallel()
	for want, s := range map[string]Settings{
		`cpu-manager-policy: "dynamic" must be one of: ["none" "static"]`:                                          {Pinning: Pinning{CPUPolicy: "dynamic"}},
		`memory-manager-policy: "static" must be one of: ["None" "Static"]`:                                        {Pinning: Pinning{MemoryPolicy: "static"}},
		`topology-manager-policy: "strict" must be one of: ["none" "best-effort" "restricted" "single-numa-node"]`: {Pinning: Pinning{TopologyPolicy: "strict"}},
		`topology-manager-scope: "node" must be one of: ["container" "pod"]`:                                       {Pinning: Pinning{TopologyScope: "node"}},
		`cpu-manager-policy-options: unknown CPU Manager Policy option: "x"`:                                       {Pinning: Pinning{CPUPolicy: "static", CPUOptions: map[string]string{"x": "true"}}},
		`cpu-manager-policy-options: the none policy received unexpected options`:                                  {Pinning: Pinning{CPUOptions: map[string]string{"full-pcpus-only": "true"}}},
		`topology-manager-policy-options: unknown Topology Manager Policy option: "x"`:                             {Pinning: Pinning{TopologyOptions: map[string]string{"x": "true"}}},
		`reserved-cpus: strconv.Atoi: parsing "x": invalid syntax`:                                                 {Pinning: Pinning{ReservedCPU: "x"}},
		`reserved-cpus: can't be used with system-reserved-cgroup or kube-reserved-cgroup`:                         {Pinning: Pinning{ReservedCPU: "0"}, KubeCgroup: "/kube"},
	} {
		if _, err := s.withDefaults(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	kube := Reserved{v1.ResourceCPU: resource.MustParse("3"), v1.ResourceMemory: resource.MustParse("1Gi")}
	s, err := Settings{KubeReserved: kube, Pinning: Pinning{ReservedCPU: "0,4"}}.withDefaults()
	if err != nil || s.KubeReserved.String() != "memory=1Gi" || s.SystemReserved.String() != "cpu=2" || len(kube) != 2 {
		t.Errorf("processors that are named: got %s, %s, %v; want two in place of what was said", s.KubeReserved.String(), s.SystemReserved.String(), err)
	}
}

// alignedNode is a node with sockets for plugins, and such a machine, whose pods are aligned as a whole.
func alignedNode(t *testing.T) *deviceNode {
	t.Helper()
	root, err := os.MkdirTemp("", "node") // shorter than the test's name, as the path of a socket must be
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	n := &deviceNode{t: t, api: newMemAPI(t), cri: fakecri.New(fakecri.Options{}), root: root}
	n.runWith(Options{
		NodeName: "n1", Transport: n.api, Runtime: n.cri, Images: n.cri, Events: n.api, Simulated: true,
		Capacity: v1.ResourceList{v1.ResourceCPU: resource.MustParse("8"), v1.ResourceMemory: resource.MustParse("2Gi")}, Dirs: Dirs{RootDir: root},
		Settings: Settings{
			KubeReserved: Reserved{v1.ResourceMemory: resource.MustParse("24Mi")},
			Pinning: Pinning{
				CPUPolicy: "static", ReservedCPU: "0,4", MemoryPolicy: "Static", ReservedMemory: memory.Reserved{1: {v1.ResourceMemory: resource.MustParse("24Mi")}},
				TopologyPolicy: "restricted", TopologyScope: "pod",
			},
		},
		Log:  slog.New(slog.NewTextHandler(io.Discard, nil)),
		fake: fakes{plugins: root, machine: fakemachine.New(t, fakemachine.Shape{Sockets: 2, Cores: 2, Threads: 2, Memory: 1024})},
	})
	return n
}

func TestPluginThatHangsHoldsUpNobodyElseWhoIsAligned(t *testing.T) {
	n := alignedNode(t)
	f := n.plugin("a", "b")
	n.offers("2", "2")
	deaf := make(chan struct{})
	f.Deafen(deaf)
	createPod(t, n.api, "first", wantsGPU)
	wait.Until(t, func() error {
		if calls := f.Calls(); len(calls) == 0 {
			return errors.New("the plugin has not been asked")
		}
		return nil
	})
	createPod(t, n.api, "second", wantsGPU) // it waits for its turn
	createPod(t, n.api, "other", guaranteed("2", "64Mi"))
	n.until("other", running)
	deletePod(t, n.api, "second", 1) // it is not waited for
	gone(n, "second")
	close(deaf)
	n.until("first", running)
}

func TestMonitorsAreToldOfProcessorsAndMemory(t *testing.T) {
	n := alignedNode(t)
	// A device of node 1 has the pod go there, though node 0 would do for the rest.
	f := n.plugin()
	f.SetAt("a", 1)
	n.offers("1", "1")
	createPod(t, n.api, "p", `{containers: [{name: c, image: x, resources: {limits: {cpu: 2, memory: 64Mi, example.com/gpu: 1}, requests: {cpu: 2, memory: 64Mi, example.com/gpu: 1}}}, {name: d, image: x, resources: {limits: {cpu: 100m, memory: 1Mi}, requests: {cpu: 100m, memory: 1Mi}}}]}`)
	n.until("p", running)
	conn, err := grpc.NewClient("unix://"+filepath.Join(n.root, "pod-resources/kubelet.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	api := podapi.NewPodResourcesListerClient(conn)
	wait.Until(t, func() error {
		resp, err := api.Get(t.Context(), &podapi.GetPodResourcesRequest{PodName: "p", PodNamespace: "default"})
		if err != nil {
			return err
		}
		c, d := resp.PodResources.Containers[0], resp.PodResources.Containers[1]
		if fmt.Sprint(c.CpuIds) != "[2 6]" || len(d.CpuIds) != 0 || len(c.Memory) != 1 || c.Memory[0].MemoryType != "memory" || c.Memory[0].Size != 64<<20 || c.Memory[0].Topology.Nodes[0].ID != 1 || len(c.Devices) != 1 {
			return fmt.Errorf("got %v", resp)
		}
		return nil
	})
	all, err := api.GetAllocatableResources(t.Context(), &podapi.AllocatableResourcesRequest{})
	if err != nil || fmt.Sprint(all.CpuIds) != "[1 2 3 5 6 7]" || len(all.Memory) != 2 || all.Memory[1].Size != 1000<<20 {
		t.Errorf("allocatable: got %v, %v", all, err)
	}
}
