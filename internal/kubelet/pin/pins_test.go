package pin

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/cpuset"

	"github.com/kemudi/kemudi/internal/kubelet/cpus"
	"github.com/kemudi/kemudi/internal/kubelet/fakemachine"
	"github.com/kemudi/kemudi/internal/kubelet/memory"
	"github.com/kemudi/kemudi/internal/kubelet/numa"
	"github.com/kemudi/kemudi/test/metric"
)

// start returns what pods have on a machine with two nodes, each of four processors and a gigabyte, aligned by a policy.
func start(t *testing.T, policy, scope string) (*Pins, *prometheus.Registry) {
	t.Helper()
	dir, reg, log := t.TempDir(), prometheus.NewRegistry(), slog.New(slog.NewTextHandler(io.Discard, nil))
	m := fakemachine.New(t, fakemachine.Shape{Sockets: 2, Cores: 4, Memory: 1024})
	alignments := numa.NewAlignments(reg)
	o := Options{Scope: scope}
	var err error
	if o.CPUs, err = cpus.New(cpus.Options{
		Machine: m, Reserve: 1, Path: filepath.Join(dir, "cpu_manager_state"), Changed: func() {}, Alignments: alignments, Registry: reg, Log: log,
	}); err != nil {
		t.Fatal(err)
	}
	if o.Memory, err = memory.New(memory.Options{
		Machine: m, Reserved: memory.Reserved{0: {v1.ResourceMemory: resource.MustParse("24Mi")}}, Kept: v1.ResourceList{v1.ResourceMemory: resource.MustParse("24Mi")},
		Path: filepath.Join(dir, "memory_manager_state"), Registry: reg, Log: log,
	}); err != nil {
		t.Fatal(err)
	}
	if policy != numa.None {
		if o.Align, err = numa.NewPolicy(policy, nil, m); err != nil {
			t.Fatal(err)
		}
		o.Metrics = NewMetrics(reg, alignments)
	}
	return New(o), reg
}

// podOf is a guaranteed pod with a container for each pair of CPUs and memory, as 2/100Mi.
func podOf(name string, amounts ...string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)}}
	for i, amount := range amounts {
		cpu, size, _ := strings.Cut(amount, "/")
		list := v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(size)}
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: string(rune('a' + i)), Resources: v1.ResourceRequirements{Requests: list, Limits: list}})
	}
	return p
}

func TestResourcesAreNearToEachOther(t *testing.T) {
	t.Parallel()
	big, even := podOf("big", "3/900Mi"), podOf("even", "4/1010Mi")
	for policy, want := range map[string][]string{
		// The memory of node 0 is too little for the second one, whose processors would be there.
		numa.None:       {"1-3 0", "4-7 1", "0 "},
		numa.BestEffort: {"1-3 0", "4-7 1", "0 "},
		numa.Restricted: {"1-3 0", "4-7 1", "0 "},
		numa.SingleNode: {"1-3 0", "4-7 1", "0 "},
	} {
		p, _ := start(t, policy, numa.ScopeContainer)
		for i, pod := range []*v1.Pod{big, even, podOf("fraction", "500m/1Mi")} {
			if i == 2 {
				pod.Spec.Containers[0].Resources.Limits = nil // burstable
			}
			if err := p.Take(t.Context(), pod); err != nil {
				t.Errorf("%s: pod %s: %v", policy, pod.Name, err)
				continue
			}
			at := p.Place(pod.UID, "a")
			if got := at.CPUs + " " + at.Nodes; got != want[i] {
				t.Errorf("%s: pod %s has %q, want %q", policy, pod.Name, got, want[i])
			}
		}
	}
}

func TestWhatIsNotNearEnoughIsRefused(t *testing.T) {
	t.Parallel()
	for policy, refused := range map[string]bool{numa.None: false, numa.BestEffort: false, numa.Restricted: true, numa.SingleNode: true} {
		p, reg := start(t, policy, numa.ScopeContainer)
		// Two processors are left on each node: four could be on one, but are not.
		for _, name := range []string{"x", "y"} {
			pod := podOf(name, "1/10Mi")
			if name == "y" {
				pod = podOf(name, "2/1010Mi") // on the other node
			}
			if err := p.Take(t.Context(), pod); err != nil {
				t.Fatalf("%s: %v", policy, err)
			}
		}
		wide := podOf("wide", "4/0")
		wide.Spec.Containers[0].Resources.Requests[v1.ResourceMemory] = resource.MustParse("1Mi")
		wide.Spec.Containers[0].Resources.Limits[v1.ResourceMemory] = resource.MustParse("1Mi")
		err := p.Take(t.Context(), wide)
		if !refused {
			if err != nil || p.CPUs.Of(wide.UID, "a").Size() != 4 {
				t.Errorf("%s: got %v, want it taken on", policy, err)
			}
			continue
		}
		reason, message := "", ""
		if err != nil {
			reason, message = Refusal(err)
		}
		if reason != "TopologyAffinityError" || message != "Resources cannot be allocated with Topology locality" {
			t.Errorf("%s: got %v (%s), want it refused", policy, err, reason)
		}
		if !p.Wants(wide) || p.CPUs.Any(wide.UID) || p.Memory.Any(wide.UID) {
			t.Errorf("%s: the pod that was refused has something", policy)
		}
		requests, failed := metric.Value(t, reg, "kubelet_topology_manager_admission_requests_total"), metric.Value(t, reg, "kubelet_topology_manager_admission_errors_total")
		if requests != 3 || failed != 1 {
			t.Errorf("%s: got %v requests and %v errors, want 3 and 1", policy, requests, failed)
		}
		want := map[string]float64{numa.SingleNode: 1}[policy] // no other promises anything
		if got := metric.Value(t, reg, "kubelet_container_aligned_compute_resources_failure_count", "scope=container", "boundary=numa_node"); got != want {
			t.Errorf("%s: not aligned: got %v, want %v", policy, got, want)
		}
	}
}

func TestAPodIsAlignedAsAWhole(t *testing.T) {
	t.Parallel()
	// Each container fits on a node, both together on node 1 only.
	two := podOf("two", "2/100Mi", "2/100Mi")
	p, _ := start(t, numa.SingleNode, numa.ScopeContainer)
	if err := p.Take(t.Context(), two); err != nil {
		t.Fatal(err)
	}
	if a, b := p.Place(two.UID, "a"), p.Place(two.UID, "b"); a.Nodes != "0" || b.Nodes != "1" {
		t.Errorf("each by itself: got %+v and %+v, want them on both nodes", a, b)
	}
	p, _ = start(t, numa.SingleNode, numa.ScopePod)
	if err := p.Take(t.Context(), two); err != nil {
		t.Fatal(err)
	}
	if a, b := p.Place(two.UID, "a"), p.Place(two.UID, "b"); a != (Place{"4-5", "1"}) || b != (Place{"6-7", "1"}) {
		t.Errorf("as a whole: got %+v and %+v, want them on node 1", a, b)
	}
	if err := p.Take(t.Context(), podOf("three", "2/1Mi", "2/1Mi")); err == nil {
		t.Error("a pod whose containers together fit on no node was taken on")
	}
}

func TestContainersAreHeldToTheirPlace(t *testing.T) {
	t.Parallel()
	p, _ := start(t, numa.None, "")
	pod := podOf("p", "2/100Mi", "500m/100Mi")
	if err := p.Take(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	own, shared, all := &runtimeapi.LinuxContainerResources{CpuQuota: 200000}, &runtimeapi.LinuxContainerResources{CpuQuota: 50000}, &runtimeapi.LinuxContainerResources{CpuQuota: 250000}
	p.Hold(pod, "a", own)
	p.Hold(pod, "b", shared)
	p.HoldPod(pod, all)
	if own.CpusetCpus != "1-2" || own.CpusetMems != "0" || own.CpuQuota != -1 {
		t.Errorf("a container with processors for itself: got %v, want it on 1-2, without quota", own)
	}
	if shared.CpusetCpus != "0,3-7" || shared.CpuQuota != 50000 || all.CpuQuota != 0 {
		t.Errorf("another one of its pod, and the pod: got %v and %v", shared, all)
	}
	changed := func(name v1.ResourceName) bool { return name == v1.ResourceCPU }
	if detail, got := p.Frozen(pod, changed); detail != "guaranteed_pod_cpu_manager_static_policy" || got != `Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"` {
		t.Errorf("other CPUs: got %q", got)
	}
	if detail, got := p.Frozen(pod, func(name v1.ResourceName) bool { return !changed(name) }); detail != "guaranteed_pod_memory_manager_static_policy" || got != `Resize is infeasible for Guaranteed Pods alongside Memory Manager policy "Static"` {
		t.Errorf("other memory: got %q", got)
	}
	pod.Spec.Containers[0].Resources.Limits = nil
	if _, got := p.Frozen(pod, changed); got != "" {
		t.Errorf("a burstable pod: got %q, want nothing", got)
	}
	if _, got := New(Options{}).Frozen(podOf("q", "1/1Mi"), changed); got != "" {
		t.Errorf("a pod of a node that pins nothing: got %q, want nothing", got)
	}
}

func TestPodsThatComeTogetherGetEachTheirOwn(t *testing.T) {
	t.Parallel()
	p, _ := start(t, numa.SingleNode, numa.ScopeContainer)
	var wg sync.WaitGroup
	var taken atomic.Int32
	for i := range 12 {
		wg.Go(func() {
			if p.Take(t.Context(), podOf(fmt.Sprint(i), "1/1Mi")) == nil {
				taken.Add(1)
			}
		})
	}
	wg.Wait()
	all := cpuset.New()
	for i := range 12 {
		own := p.CPUs.Of(types.UID(fmt.Sprintf("uid-%d", i)), "a")
		if !own.Intersection(all).IsEmpty() {
			t.Errorf("processors %s are given twice", own.Intersection(all))
		}
		all = all.Union(own)
	}
	if got := taken.Load(); got != 7 || all.String() != "1-7" {
		t.Errorf("%d pods have %s, want seven to have 1-7", got, all)
	}
}

func TestPodsThatComeTogetherAreEachAlignedAsAWhole(t *testing.T) {
	t.Parallel()
	for range 20 {
		p, _ := start(t, numa.SingleNode, numa.ScopePod)
		var wg sync.WaitGroup
		var taken atomic.Int32
		for i := range 12 {
			wg.Go(func() {
				pod := podOf(fmt.Sprint(i), "1/1Mi", "1/1Mi")
				if p.Take(t.Context(), pod) != nil {
					return
				}
				taken.Add(1)
				if a, b := p.Place(pod.UID, "a"), p.Place(pod.UID, "b"); a.Nodes != b.Nodes {
					t.Errorf("pod %d: got %+v and %+v, want both on one node", i, a, b)
				}
			})
		}
		wg.Wait()
		if got := taken.Load(); got != 3 { // one on node 0, of which a processor is reserved, and two on node 1
			t.Errorf("got %d pods, want 3", got)
		}
	}
}

func TestOtherErrorsAreUnexpected(t *testing.T) {
	t.Parallel()
	reason, message := Refusal(errors.New("it is on fire"))
	if reason != "UnexpectedAdmissionError" || message != "Allocate failed due to it is on fire, which is unexpected" {
		t.Errorf("got %s: %s", reason, message)
	}
	p, _ := start(t, numa.None, "")
	p.CPUs, p.Memory = nil, nil
	if p.Wants(podOf("p", "1/1Mi")) || p.Pools() || p.Take(t.Context(), podOf("p", "1/1Mi")) != nil || p.Place("uid-p", "a") != (Place{}) {
		t.Error("a node that pins nothing pins something")
	}
}
