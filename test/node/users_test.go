package node

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/kubelet/apitest"
)

// hostUser is the user on the node that the first process of a pod's container
// runs as.
func (m *machine) hostUser(pod string) string {
	m.Helper()
	p := apitest.GetPod(m.T, m.api, pod)
	id := strings.TrimPrefix(p.Status.ContainerStatuses[0].ContainerID, "containerd://")
	resp, err := m.cri.Runtime.ContainerStatus(m.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if err != nil {
		m.Fatal(err)
	}
	var info struct{ Pid int }
	if err := json.Unmarshal([]byte(resp.Info["info"]), &info); err != nil || info.Pid == 0 {
		m.Fatalf("process of %s: got %d, %v", pod, info.Pid, err)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", info.Pid))
	if err != nil {
		m.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "Uid:"); ok {
			return strings.Fields(rest)[0]
		}
	}
	m.Fatalf("process of %s says no user: %s", pod, status)
	return ""
}

// e2eUsers shows pods with hostUsers: false.
func e2eUsers(t *testing.T, m *machine) {
	if _, err := client.For(m.api, core.ConfigMaps).Create(t.Context(), &v1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "own"}, Data: map[string]string{"k": "v"},
	}); err != nil {
		t.Fatal(err)
	}
	spec := `{terminationGracePeriodSeconds: 1, hostUsers: false, securityContext: {fsGroup: 3003},
		volumes: [{name: e, emptyDir: {}}, {name: mem, emptyDir: {medium: Memory}}, {name: cm, configMap: {name: own}}],
		containers: [{name: c, image: ` + busybox + `, command: [sh, -c, "echo started; exec sleep 1000"],
			readinessProbe: {exec: {command: [test, -e, /cm/k]}, periodSeconds: 1},
			volumeMounts: [{name: e, mountPath: /e}, {name: mem, mountPath: /mem}, {name: cm, mountPath: /cm}, {name: e, subPath: part, mountPath: /part}]}]}`
	ranges := map[string]string{} // who has which
	check := func(name string) *v1.Pod {
		t.Helper()
		p := m.ready(name)
		users := strings.Fields(m.exec(name, "cat", "/proc/self/uid_map"))
		groups := strings.Fields(m.exec(name, "cat", "/proc/self/gid_map"))
		if len(users) != 3 || users[0] != "0" || users[1] == "0" || users[2] != "65536" || strings.Join(groups, " ") != strings.Join(users, " ") {
			t.Fatalf("%s: users %v, groups %v; want 0 FIRST 65536 for both", name, users, groups)
		}
		if got := m.hostUser(name); got != users[1] {
			t.Errorf("%s: root is user %s on the node, want %s", name, got, users[1])
		}
		if other := ranges[users[1]]; other != "" && other != name {
			t.Errorf("%s has the users of %s", name, other)
		}
		ranges[users[1]] = name
		return p
	}
	for _, name := range []string{"own-1", "own-2"} {
		apitest.CreatePod(t, m.api, name, spec)
	}
	first := check("own-1")
	check("own-2")
	got := m.exec("own-1", "sh", "-c", `id -u; touch /e/f /mem/f /part/f; mkdir /made; chown 7:8 /e/f
		stat -c '%n %u:%g' / /made /e /e/f /mem/f /part/f /cm/k /etc/hosts /dev/termination-log; echo no >/cm/k; echo words >/dev/termination-log && echo said`)
	for _, want := range []string{
		"0\n/ 0:0\n", "\n/made 0:0\n", "\n/e 0:3003\n", "\n/e/f 7:8\n", "\n/mem/f 0:3003\n", "\n/part/f 0:3003\n", "\n/cm/k 0:3003\n",
		"\n/etc/hosts 0:0\n", "\n/dev/termination-log 0:0\n", "/cm/k: Read-only file system\n", "said\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("files of the pod: no %q in %q", want, got)
		}
	}
	// On the node they belong to the users that the pod sees, not to its range.
	if owner := ownerOf(t, filepath.Join(m.dir, "kubelet/pods", string(first.UID), "volumes/kubernetes.io~empty-dir/e/f")); owner != "7:8" {
		t.Errorf("owner on disk of what the pod's root gave to 7:8: got %s", owner)
	}
	m.end()
	m.start()
	<-m.agent.Running()
	apitest.CreatePod(t, m.api, "own-3", spec)
	for _, name := range []string{"own-3", "own-1", "own-2"} {
		check(name)
	}
	if p := apitest.GetPod(t, m.api, "own-1"); p.Status.ContainerStatuses[0].ContainerID != first.Status.ContainerStatuses[0].ContainerID {
		t.Errorf("after a restart of the agent the pod has another container")
	}
	apitest.CreatePod(t, m.api, "own-user", strings.Replace(spec, "{fsGroup: 3003}", "{runAsUser: 1001, runAsGroup: 1002}", 1))
	p := m.ready("own-user")
	if got := m.exec("own-user", "sh", "-c", "touch /e/f /part/f; stat -c %u:%g /e/f /part/f; cat /cm/k"); got != "1001:1002\n1001:1002\nv" {
		t.Errorf("files of a user of the pod's own: got %q", got)
	}
	if owner := ownerOf(t, filepath.Join(m.dir, "kubelet/pods", string(p.UID), "volumes/kubernetes.io~empty-dir/e/f")); owner != "1001:1002" {
		t.Errorf("owner on disk: got %s, want 1001:1002", owner)
	}
	for _, name := range []string{"own-1", "own-2", "own-3", "own-user"} {
		apitest.DeletePod(t, m.api, name, 1)
	}
	for _, name := range []string{"own-1", "own-2", "own-3", "own-user"} {
		m.wait(name, "gone", func(p *v1.Pod) bool { return p == nil })
	}
}

func ownerOf(t *testing.T, path string) string {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	st := info.Sys().(*syscall.Stat_t)
	return fmt.Sprintf("%d:%d", st.Uid, st.Gid)
}
