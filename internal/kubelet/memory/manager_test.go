package memory

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
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/kubelet/fakemachine"
	"github.com/kemudi/kemudi/internal/kubelet/numa"
	"github.com/kemudi/kemudi/internal/kubelet/sequence"
)

// twoNodes has a gigabyte on each of two nodes, of which 64 MiB are huge pages.
var twoNodes = fakemachine.Shape{Sockets: 2, Cores: 2, Memory: 1024, HugePages: 32}

// open starts an agent of which nothing but memory is there; 100 MiB are reserved on node 0.
func open(t *testing.T, path string, reserved string) (*Manager, error) {
	t.Helper()
	var r Reserved
	if err := r.Set(reserved); err != nil {
		t.Fatal(err)
	}
	return New(Options{
		Machine: fakemachine.New(t, twoNodes), Reserved: r, Kept: v1.ResourceList{v1.ResourceMemory: resource.MustParse("100Mi")}, Path: path,
		Registry: prometheus.NewRegistry(), Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
}

func start(t *testing.T) (m *Manager, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "memory_manager_state")
	m, err := open(t, path, "0:memory=100Mi")
	if err != nil {
		t.Fatal(err)
	}
	return m, path
}

// podOf is a guaranteed pod with a container for each amount of memory, and of huge pages behind a slash; with a + before it is a
// sidecar, with a - one that ends before the others begin.
func podOf(name string, amounts ...string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)}}
	for i, amount := range amounts {
		size, huge, _ := strings.Cut(strings.TrimLeft(amount, "+-"), "/")
		list := v1.ResourceList{v1.ResourceCPU: resource.MustParse("100m"), v1.ResourceMemory: resource.MustParse(size)}
		if huge != "" {
			list["hugepages-2Mi"] = resource.MustParse(huge)
		}
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

// give gives a pod its memory, and returns the nodes of its containers.
func give(t *testing.T, m *Manager, p *v1.Pod, near numa.Mask) (string, error) {
	t.Helper()
	for _, c := range sequence.Of(p) {
		if err := m.Give(p, c.Container, near); err != nil {
			m.Release(p.UID)
			return "", err
		}
	}
	var out []string
	for _, c := range sequence.Of(p) {
		out = append(out, m.Nodes(p.UID, c.Name).String())
	}
	return strings.Join(out, " "), m.Save()
}

func want(t *testing.T, m *Manager, p *v1.Pod, want string) {
	t.Helper()
	if got, err := give(t, m, p, 0); err != nil || got != want {
		t.Errorf("pod %s has memory of nodes %q, %v; want %q", p.Name, got, err, want)
	}
}

func TestGuaranteedContainersGetMemoryOfNodes(t *testing.T) {
	t.Parallel()
	m, _ := start(t)
	burstable := podOf("burstable", "100Mi")
	burstable.Spec.Containers[0].Resources.Limits = nil
	if m.Wants(burstable) {
		t.Error("a burstable pod wants memory for itself")
	}
	want(t, m, burstable, "")
	want(t, m, podOf("p", "500Mi/32Mi"), "0")
	want(t, m, podOf("q", "500Mi"), "1") // node 0 has 360 MiB left
	want(t, m, podOf("r", "300Mi/32Mi"), "0")
	if _, err := give(t, m, podOf("s", "500Mi"), 0); err == nil || err.Error() != errNone.Error() {
		t.Errorf("more than any node has left: got %v, want %v", err, errNone)
	}
	// Two nodes together are for nobody as long as one of them is another's.
	if _, err := give(t, m, podOf("s", "1200Mi"), 0); err == nil {
		t.Error("two nodes were given, of which others have each")
	}
	if _, err := give(t, m, podOf("s", "100Mi/64Mi"), numa.MaskOf(0)); err == nil || err.Error() != errExtend.Error() {
		t.Errorf("more than node 0 has: got %v, want %v", err, errExtend)
	}
	for _, name := range []types.UID{"uid-p", "uid-q", "uid-r"} {
		m.Release(name)
	}
	want(t, m, podOf("s", "1200Mi"), "0,1")
	want(t, m, podOf("t", "100Mi"), "0,1") // both are a group now
	got := m.Of("uid-s", "c0")
	if len(got) != 1 || got[0].Kind != v1.ResourceMemory || got[0].Size != 1200<<20 || fmt.Sprint(got[0].Nodes) != "[0 1]" {
		t.Errorf("what the container has: got %+v", got)
	}
	var parts []string
	for _, p := range m.Allocatable() {
		parts = append(parts, fmt.Sprintf("%s %v %d", p.Kind, p.Nodes, p.Size>>20))
	}
	if got, want := strings.Join(parts, ", "), "hugepages-2Mi [0] 64, memory [0] 860, hugepages-2Mi [1] 64, memory [1] 960"; got != want {
		t.Errorf("allocatable: got %s, want %s", got, want)
	}
}

func TestMemoryIsGivenNearby(t *testing.T) {
	t.Parallel()
	m, _ := start(t)
	if got, err := give(t, m, podOf("p", "100Mi"), numa.MaskOf(1)); err != nil || got != "1" {
		t.Errorf("near node 1: got %q, %v", got, err)
	}
	q := podOf("q", "900Mi")
	if got, err := give(t, m, q, numa.MaskOf(0)); err == nil {
		t.Errorf("more than node 0 has, of which node 1 is another's: got %q, want an error", got)
	}
	h := m.Hints(q, &q.Spec.Containers[0])["memory"]
	if len(h) != 0 {
		t.Errorf("hints: got %+v, want none, as no node has so much and both together are nobody's", h)
	}
	m.Release("uid-p")
	h = m.Hints(q, &q.Spec.Containers[0])["memory"]
	if len(h) != 2 || h[0] != (numa.Hint{Nodes: numa.MaskOf(1), Preferred: true}) || h[1] != (numa.Hint{Nodes: numa.MaskOf(0, 1)}) {
		t.Errorf("hints: got %+v, want node 1 and both", h)
	}
	if got, err := give(t, m, q, numa.MaskOf(0)); err != nil || got != "0,1" {
		t.Errorf("near node 0, which has not enough: got %q, %v; want it together with node 1", got, err)
	}
	if h := m.PodHints(podOf("r", "-500Mi", "+100Mi", "300Mi"))["memory"]; len(h) != 1 || h[0].Nodes != numa.MaskOf(0, 1) {
		t.Errorf("hints for a pod: got %+v, want the group", h)
	}
}

func TestInitContainersHandMemoryOn(t *testing.T) {
	t.Parallel()
	m, _ := start(t)
	// 800 at first; then the sidecar has 300 of them, the last container 400: node 0 has room for 60 more.
	want(t, m, podOf("p", "-800Mi", "+300Mi", "400Mi"), "0 0 0")
	want(t, m, podOf("q", "60Mi"), "0")
	want(t, m, podOf("r", "1Mi"), "1")
}

func TestMemorySurvivesTheAgent(t *testing.T) {
	t.Parallel()
	m, path := start(t)
	want(t, m, podOf("p", "100Mi/2Mi"), "0")
	want(t, m, podOf("q", "900Mi"), "1")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		`{"policyName":"Static","machineState":{"0":{"numberOfAssignments":2,"memoryMap":{"hugepages-2Mi":{"total":67108864,"systemReserved":0,"allocatable":67108864,"reserved":2097152,"free":65011712},` +
			`"memory":{"total":1073741824,"systemReserved":104857600,"allocatable":901775360,"reserved":104857600,"free":796917760}},"cells":[0]}`,
		`"uid-p":{"c0":[{"numaAffinity":[0],"type":"hugepages-2Mi","size":2097152},{"numaAffinity":[0],"type":"memory","size":104857600}]}`,
	} {
		if !strings.Contains(string(text), part) {
			t.Errorf("file: got %s, want in it %s", text, part)
		}
	}
	if m, err = open(t, path, "0:memory=100Mi"); err != nil {
		t.Fatal(err)
	}
	if got := m.Nodes("uid-q", "c0").String(); got != "1" {
		t.Errorf("a new agent says that the pod has memory of node %s, want 1", got)
	}
	if _, err := open(t, path, "1:memory=100Mi"); err == nil || !strings.Contains(err.Error(), "the expected machine state is different from the real one") {
		t.Errorf("a node that has less now: got %v, want it refused", err)
	}
	m.Keep(func(uid types.UID) bool { return uid == "uid-p" })
	if _, err := open(t, path, "1:memory=100Mi"); err != nil {
		t.Errorf("a node that has enough still: %v", err)
	}
}

func TestBadReservationsAreRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"memory=1Gi":                   "incorrect format, expected numaNode:type=quantity",
		"x:memory=1Gi":                 "incorrect format",
		"-1:memory=1Gi":                "incorrect format",
		"0:memory":                     "incorrect format",
		"0:memory=lots":                "quantity of memory of NUMA node 0",
		"0:memory=0":                   `reserved memory may not be zero for NUMA node 0 and resource "memory"`,
		"0:cpu=1":                      `the limit type "cpu" for NUMA node 0 is not supported`,
		"0:memory=1Gi,0:memory=2Gi":    `the reserved memory has a duplicate value for NUMA node 0 and resource "memory"`,
		"0:memory=1Gi;1:memory=1Gi, x": "incorrect format",
	} {
		var r Reserved
		if err := r.Set(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
	path := filepath.Join(t.TempDir(), "memory_manager_state")
	for text, want := range map[string]string{
		"2:memory=100Mi":                  "references a NUMA node 2 that does not exist",
		"0:memory=50Mi,1:memory=60Mi":     `the total amount "110Mi" of type "memory" is not equal to the value "100Mi" determined by Node Allocatable feature`,
		"0:memory=100Mi,hugepages-2Mi=2M": `the total amount "2M" of type "hugepages-2Mi" is not equal to the value "0" determined`,
	} {
		if _, err := open(t, path, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
	var r Reserved
	if err := r.Set("1:memory=1Gi,hugepages-2Mi=64Mi,0:memory=2Gi"); err != nil || r.String() != "0:memory=2Gi,1:hugepages-2Mi=64Mi,memory=1Gi" {
		t.Errorf("got %s, %v", r.String(), err)
	}
}
