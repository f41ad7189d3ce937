package cpus

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/kubelet/fakemachine"
	"github.com/kemudi/kemudi/internal/kubelet/numa"
	"github.com/kemudi/kemudi/internal/kubelet/sequence"
	"github.com/kemudi/kemudi/test/metric"
)

// bed is a machine of which there are only processors.
type bed struct {
	*Manager
	t        *testing.T
	registry *prometheus.Registry
	changes  int
}

// open starts an agent, with options that are changed before by tune, if there is one.
func open(t *testing.T, path string, s fakemachine.Shape, tune func(*Options)) (*bed, error) {
	t.Helper()
	b := &bed{t: t, registry: prometheus.NewRegistry()}
	o := Options{
		Machine: fakemachine.New(t, s), Reserve: 1, Path: path, Changed: func() { b.changes++ }, Alignments: numa.NewAlignments(b.registry),
		Registry: b.registry, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
	if tune != nil {
		tune(&o)
	}
	var err error
	b.Manager, err = New(o)
	return b, err
}

func start(t *testing.T, s fakemachine.Shape, tune func(*Options)) *bed {
	t.Helper()
	b, err := open(t, filepath.Join(t.TempDir(), "cpu_manager_state"), s, tune)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// podOf is a guaranteed pod with a container for each amount of CPUs; one with a + before is a sidecar, with a - one that ends before the others
// begin.
func podOf(name string, amounts ...string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)}}
	for i, amount := range amounts {
		list := v1.ResourceList{v1.ResourceCPU: resource.MustParse(strings.TrimLeft(amount, "+-")), v1.ResourceMemory: resource.MustParse("1Mi")}
		c := v1.Container{Name: fmt.Sprintf("c%d", i), Resources: v1.ResourceRequirements{Requests: list, Limits: list}}
		switch amount[0] {
		case '+':
			c.RestartPolicy = ptr.To(v1.ContainerRestartPolicyAlways)
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		case '-':
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		default:
			p.Spec.Containers = append(p.Spec.Containers, c)
		}
	}
	return p
}

// give gives the pod what it wants, and returns what its containers run on.
func (b *bed) give(p *v1.Pod) (string, error) {
	b.t.Helper()
	for _, c := range sequence.Of(p) {
		if err := b.Give(p, c.Container, 0); err != nil {
			b.Release(p.UID)
			return "", err
		}
	}
	return b.sets(p), b.Save()
}

func (b *bed) sets(p *v1.Pod) string {
	var out []string
	for _, c := range sequence.Of(p) {
		out = append(out, b.Set(p.UID, c.Name).String())
	}
	return strings.Join(out, " ")
}

func (b *bed) want(p *v1.Pod, want string) {
	b.t.Helper()
	if got, err := b.give(p); err != nil || got != want {
		b.t.Errorf("pod %s runs on %q, %v; want %q", p.Name, got, err, want)
	}
}

var hyperthreads = fakemachine.Shape{Cores: 4, Threads: 2}

func TestGuaranteedContainersGetProcessorsForThemselves(t *testing.T) {
	t.Parallel()
	b := start(t, hyperthreads, nil)
	burstable := podOf("burstable", "2")
	burstable.Spec.Containers[0].Resources.Limits = nil
	whole := podOf("whole", "2")
	whole.Spec.Resources = &v1.ResourceRequirements{Requests: whole.Spec.Containers[0].Resources.Requests, Limits: whole.Spec.Containers[0].Resources.Limits}
	for _, p := range []*v1.Pod{burstable, podOf("fraction", "1500m"), whole} {
		if b.Wants(p) {
			t.Errorf("pod %s wants processors for itself", p.Name)
		}
		b.want(p, "0-7")
	}
	if b.changes != 0 {
		t.Errorf("the pool has changed %d times, want never", b.changes)
	}
	mixed := podOf("mixed", "2", "500m")
	if !b.Wants(mixed) {
		t.Error("a pod with a container that asks for two processors does not want them")
	}
	b.want(mixed, "1,5 0,2-4,6-7")
	if b.Wants(mixed) || !b.Any(mixed.UID) || b.Any(burstable.UID) {
		t.Error("who has processors is not known")
	}
	if got := b.sets(burstable); got != "0,2-4,6-7" {
		t.Errorf("others run on %s, want 0,2-4,6-7", got)
	}
	b.want(mixed, "1,5 0,2-4,6-7") // again
	if _, err := b.give(podOf("large", "6")); err == nil || err.Error() != "not enough cpus available to satisfy request: requested=6, available=5" {
		t.Errorf("six processors: got %v, want that there are only five", err)
	}
	b.Release(mixed.UID)
	if got := b.sets(burstable); got != "0-7" || b.changes == 0 {
		t.Errorf("others run on %s, want 0-7", got)
	}
}

func TestInitContainersHandProcessorsOn(t *testing.T) {
	t.Parallel()
	b := start(t, hyperthreads, nil)
	b.want(podOf("p", "-4", "+2", "-2", "2"), "1-2,5-6 1,5 2,6 2,6")
	b = start(t, hyperthreads, nil)
	b.want(podOf("p", "-2", "4"), "1,5 1-2,5-6")
}

func TestProcessorsSurviveTheAgent(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "cpu_manager_state")
	b, err := open(t, path, hyperthreads, nil)
	if err != nil {
		t.Fatal(err)
	}
	b.want(podOf("p", "2"), "1,5")
	b.want(podOf("q", "1"), "4")
	if b, err = open(t, path, hyperthreads, nil); err != nil {
		t.Fatal(err)
	}
	if got := b.sets(podOf("p", "2")); got != "1,5" {
		t.Errorf("a new agent says that the pod runs on %s, want 1,5", got)
	}
	b.want(podOf("r", "2"), "2,6")
	b.Keep(func(uid types.UID) bool { return uid == "uid-p" })
	if got := b.sets(podOf("others", "1")); got != "0,2-4,6-7" {
		t.Errorf("after other pods have gone the pool is %s, want 0,2-4,6-7", got)
	}
	text, err := os.ReadFile(path)
	if want := `{"policyName":"static","defaultCpuSet":"0,2-4,6-7","entries":{"uid-p":{"c0":"1,5"}},"checksum":`; err != nil || !strings.HasPrefix(string(text), want) {
		t.Errorf("file: got %s, %v; want %s...", text, err, want)
	}

	for name, tc := range map[string]struct {
		shape fakemachine.Shape
		tune  func(*Options)
		want  string
	}{
		"more processors":      {fakemachine.Shape{Cores: 5, Threads: 2}, nil, `current set of available CPUs "0-9" doesn't match with CPUs in state "0-7"`},
		"others are reserved":  {hyperthreads, func(o *Options) { o.Reserved = cpuset.New(1) }, `not all reserved cpus: "1" are present in defaultCpuSet: "0,2-4,6-7"`},
		"reserved strictly":    {hyperthreads, func(o *Options) { o.Rules.Strict = true }, `some of strictly reserved cpus: "0" are present in defaultCpuSet: "0,2-4,6-7"`},
		"more are reserved":    {hyperthreads, func(o *Options) { o.Reserve = 9 }, "unable to reserve the required amount of CPUs (size of  did not equal 9"},
		"none is reserved":     {hyperthreads, func(o *Options) { o.Reserve = 0 }, "the static policy requires systemreserved.cpu + kubereserved.cpu to be greater than zero"},
		"reserved not there":   {hyperthreads, func(o *Options) { o.Reserved = cpuset.New(99) }, "or they are not online: 0-7"},
		"sockets, single node": {hyperthreads, func(o *Options) { o.Rules.BySocket, o.Aligned = true, numa.SingleNode }, "topology manager policy single-numa-node is incompatible"},
	} {
		if _, err := open(t, path, tc.shape, tc.tune); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %s", name, err, tc.want)
		}
	}
}

func TestReservedProcessorsAreStrictlyApart(t *testing.T) {
	t.Parallel()
	b := start(t, hyperthreads, func(o *Options) { o.Rules.Strict, o.Reserve, o.Reserved = true, 2, cpuset.New(3, 7) })
	b.want(podOf("fraction", "1500m"), "0-2,4-6")
	b.want(podOf("all", "6"), "0-2,4-6")
	b.Release("uid-all")
	if got := b.sets(podOf("fraction", "1500m")); got != "0-2,4-6" {
		t.Errorf("the pool is %s, want 0-2,4-6", got)
	}
	if got := b.Allocatable().String(); got != "0-2,4-6" {
		t.Errorf("allocatable: got %s, want 0-2,4-6", got)
	}
}

func TestWholeCoresOrNothing(t *testing.T) {
	t.Parallel()
	b := start(t, hyperthreads, func(o *Options) { o.Rules.FullCores = true })
	b.want(podOf("p", "4"), "1-2,5-6")
	_, err := b.give(podOf("odd", "1"))
	if err == nil || err.Error() != "SMT Alignment Error: requested 1 cpus not multiple cpus per core = 2" {
		t.Errorf("one processor: got %v, want it misaligned", err)
	}
	_, err = b.give(podOf("large", "4")) // processor 4 is free, but its core is not
	if err == nil || err.Error() != "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = 2, requested CPUs = 4, CPUs per core = 2" {
		t.Errorf("four processors: got %v, want it misaligned", err)
	}
	for name, want := range map[string]float64{
		"kubelet_cpu_manager_pinning_requests_total": 3, "kubelet_cpu_manager_pinning_errors_total": 2,
		"kubelet_cpu_manager_exclusive_cpu_allocation_count": 4, "kubelet_cpu_manager_shared_pool_size_millicores": 3000,
	} {
		if got := metric.Value(t, b.registry, name); got != want {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
	if got := metric.Value(t, b.registry, "kubelet_cpu_manager_allocation_per_numa", "numa_node=0"); got != 4 {
		t.Errorf("given of node 0: got %v, want 4", got)
	}
	if got := metric.Value(t, b.registry, "kubelet_container_aligned_compute_resources_failure_count", "scope=container", "boundary=physical_cpu"); got != 2 {
		t.Errorf("misaligned: got %v, want 2", got)
	}
	if got := metric.Value(t, b.registry, "kubelet_container_aligned_compute_resources_count", "scope=container", "boundary=physical_cpu"); got != 1 {
		t.Errorf("aligned: got %v, want 1", got)
	}
}

func hintsOf(h numa.Hints) string {
	list, ok := h["cpu"]
	if !ok {
		return "any"
	}
	var out []string
	for _, one := range list {
		text := one.Nodes.String()
		if one.Preferred {
			text += "!"
		}
		out = append(out, text)
	}
	return strings.Join(out, " ")
}

func TestNodesThatHaveEnoughAreHinted(t *testing.T) {
	t.Parallel()
	b := start(t, fakemachine.Shape{Sockets: 2, Nodes: 2, Cores: 4}, nil)
	first := func(p *v1.Pod) string { return hintsOf(b.Hints(p, sequence.Of(p)[0].Container)) }
	for amount, want := range map[string]string{
		"500m": "any", "4": "1! 2! 3! 0,1 0,2 0,3 1,2 1,3 2,3 0,1,2 0,1,3 0,2,3 1,2,3 0,1,2,3", "14": "0,1,2,3!", "16": "",
	} {
		if got := first(podOf("p", amount)); got != want {
			t.Errorf("hints for %s: got %q, want %q", amount, got, want)
		}
	}
	p := podOf("p", "4", "2")
	if got := hintsOf(b.PodHints(p)); !strings.HasPrefix(got, "0,1! 0,2! 0,3!") {
		t.Errorf("hints for a pod with six: got %q, want two nodes", got)
	}
	if err := b.Give(p, &p.Spec.Containers[0], numa.MaskOf(2)); err != nil {
		t.Fatal(err)
	}
	if got := b.Of(p.UID, "c0").String(); got != "8-11" {
		t.Errorf("near node 2: got %s, want 8-11", got)
	}
	if got := first(p); got != "2! 0,2 1,2 2,3 0,1,2 0,2,3 1,2,3 0,1,2,3" {
		t.Errorf("hints for what has been given: got %q, want those with node 2", got)
	}
	if got := first(podOf("p", "3", "2")); got != "" {
		t.Errorf("hints for another amount than what has been given: got %q, want none", got)
	}
	// What is left of node 2 is too little: the rest is of others.
	q := podOf("q", "2")
	if err := b.Give(q, &q.Spec.Containers[0], numa.MaskOf(2)); err != nil {
		t.Fatal(err)
	}
	if got := b.Of(q.UID, "c0"); got.Size() != 2 || !got.Intersection(b.Of(p.UID, "c0")).IsEmpty() {
		t.Errorf("near a node that is full: got %s, want two of others", got)
	}
}

func TestSocketsAreNearEnough(t *testing.T) {
	t.Parallel()
	b := start(t, fakemachine.Shape{Sockets: 2, Nodes: 2, Cores: 4}, func(o *Options) { o.Rules.BySocket = true })
	p := podOf("p", "6")
	if got := hintsOf(b.Hints(p, &p.Spec.Containers[0])); !strings.HasPrefix(got, "0,1! 0,2 0,3 1,2 1,3 2,3!") {
		t.Errorf("hints for six: got %q, want the nodes of one socket preferred", got)
	}
	q := podOf("q", "5")
	if err := b.Give(q, &q.Spec.Containers[0], numa.MaskOf(2)); err != nil {
		t.Fatal(err)
	}
	if got := b.Of(q.UID, "c0"); !got.IsSubsetOf(cpuset.New(8, 9, 10, 11, 12, 13, 14, 15)) {
		t.Errorf("five near node 2: got %s, want them of its socket", got)
	}
}
