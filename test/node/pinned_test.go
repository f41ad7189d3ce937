package node

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/cpuset"

	"github.com/kemudi/kemudi/internal/kubelet"
	"github.com/kemudi/kemudi/internal/kubelet/apitest"
	"github.com/kemudi/kemudi/internal/kubelet/memory"
)

// allowed is what the kernel lets a pod's container run on, or have memory of.
func (m *machine) allowed(pod, what string) string {
	m.Helper()
	for line := range strings.Lines(m.exec(pod, "cat", "/proc/self/status")) {
		if list, ok := strings.CutPrefix(line, what+"_allowed_list:"); ok {
			return strings.TrimSpace(list)
		}
	}
	m.Fatalf("the kernel does not tell what pod %s may have", pod)
	return ""
}

// A guaranteed container gets a processor that another, which runs already, loses, and gets back; a new agent and a new
// container leave it so.
func e2ePinned(t *testing.T, m *machine) {
	if runtime.NumCPU() < 2 {
		t.Skip("needs two processors")
	}
	m.end()
	files := []string{filepath.Join(m.dir, "kubelet/cpu_manager_state"), filepath.Join(m.dir, "kubelet/memory_manager_state")}
	m.pinning = kubelet.Pinning{
		CPUPolicy: "static", MemoryPolicy: "Static", TopologyPolicy: "restricted",
		// What is reserved, and what must be left before pods are evicted.
		ReservedMemory: memory.Reserved{0: {v1.ResourceMemory: resource.MustParse("228Mi")}},
	}
	m.start()
	defer func() {
		m.end()
		m.pinning = kubelet.Pinning{}
		for _, file := range files {
			if err := os.Remove(file); err != nil {
				t.Error(err)
			}
		}
		m.start()
	}()
	const sleep = `image: ` + busybox + `, command: [sh, -c, "trap exit TERM; sleep 1000 & wait"]`
	apitest.CreatePod(t, m.api, "shared", `{terminationGracePeriodSeconds: 1, containers: [{name: c, `+sleep+`}]}`)
	m.ready("shared")
	all, err := cpuset.Parse(m.allowed("shared", "Cpus"))
	if err != nil {
		t.Fatal(err)
	}
	apitest.CreatePod(t, m.api, "pinned", `{terminationGracePeriodSeconds: 1, containers: [{name: c, `+sleep+`, resources: {limits: {cpu: 1, memory: 32Mi}, requests: {cpu: 1, memory: 32Mi}}}]}`)
	p := m.ready("pinned")
	own, err := cpuset.Parse(m.allowed("pinned", "Cpus"))
	if err != nil || own.Size() != 1 || !own.IsSubsetOf(all) {
		t.Fatalf("the container runs on %s, %v; want one of %s", own, err, all)
	}
	if got := m.allowed("pinned", "Mems"); got != "0" {
		t.Errorf("the container has memory of nodes %s, want 0", got)
	}
	rest := all.Difference(own).String()
	m.eventually("others on the other processors", func() bool { return m.allowed("shared", "Cpus") == rest })
	_, quota, _ := cgroupFiles(m)
	pod := filepath.Base(m.dir) + "/kubepods/pod" + string(p.UID)
	none := "-1"
	if groups().V2() {
		none = "max"
	}
	for _, group := range []string{pod, pod + "/" + strings.TrimPrefix(p.Status.ContainerStatuses[0].ContainerID, "containerd://")} {
		checkCgroup(t, strings.ReplaceAll(quota, "%s", group), none)
	}

	m.end()
	m.start()
	apitest.CreatePod(t, m.api, "later", `{terminationGracePeriodSeconds: 1, containers: [{name: c, `+sleep+`}]}`)
	m.ready("later")
	if got := m.allowed("later", "Cpus"); got != rest {
		t.Errorf("a container of a new agent runs on %s, want %s", got, rest)
	}
	m.exec("pinned", "kill", "1")
	m.wait("pinned", "restarted", func(p *v1.Pod) bool {
		s := p.Status.ContainerStatuses[0]
		return s.RestartCount == 1 && s.Ready
	})
	if got := m.allowed("pinned", "Cpus"); got != own.String() {
		t.Errorf("started again the container runs on %s, want %s", got, own)
	}
	apitest.DeletePod(t, m.api, "pinned", 1)
	m.eventually("others on all processors again", func() bool {
		return m.allowed("shared", "Cpus") == all.String() && m.allowed("later", "Cpus") == all.String()
	})
	apitest.DeletePod(t, m.api, "shared", 1)
	apitest.DeletePod(t, m.api, "later", 1)
}
