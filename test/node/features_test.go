package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/kubelet/apitest"
	"github.com/kemudi/kemudi/internal/trace"
)

// e2eFeatures lets pods that show one thing each live beside each other.
func e2eFeatures(t *testing.T, m *machine) {
	shared := sharedDir(t, m.dir+"/shared")
	pod := func(name, spec string) {
		apitest.CreatePod(t, m.api, name, `{terminationGracePeriodSeconds: 1, `+spec+`}`)
	}
	sleeper := `image: ` + busybox + `, command: [sh, -c, "trap exit TERM; sleep 4321 & wait"]`
	pod("mounts", `volumes: [{name: h, hostPath: {path: `+shared+`}}], containers: [
		{name: c, image: `+busybox+`, command: [sh, -c, "mkdir /h/own && mount -t tmpfs none /h/own && touch /h/own/file; trap exit TERM; sleep 4321 & wait"], securityContext: {privileged: true},
			volumeMounts: [{name: h, mountPath: /h, mountPropagation: Bidirectional}]},
		{name: slave, `+sleeper+`, volumeMounts: [{name: h, mountPath: /h, mountPropagation: HostToContainer}]},
		{name: private, `+sleeper+`, volumeMounts: [{name: h, mountPath: /h}, {name: h, mountPath: /all, readOnly: true, recursiveReadOnly: Enabled}, {name: h, mountPath: /top, readOnly: true}]}]`)
	pod("signal", `os: {name: linux}, restartPolicy: Never, containers: [{name: c, image: `+busybox+`, lifecycle: {stopSignal: SIGUSR1},
		command: [sh, -c, "trap 'echo -n usr1 >/dev/termination-log; exit 0' USR1; trap 'exit 9' TERM; touch /up; while :; do sleep 0.1; done"],
		livenessProbe: {exec: {command: [sh, -c, "! test -e /up"]}, periodSeconds: 1, timeoutSeconds: 60, failureThreshold: 1, terminationGracePeriodSeconds: 60}}]`)
	pod("round", `restartPolicy: Never, volumes: [{name: v, emptyDir: {}}],
		initContainers: [{name: setup, image: `+busybox+`, command: [sh, -c, "echo x >>/v/n; echo \"ROUND='$(wc -l </v/n)' # rounds\" >/v/env"], volumeMounts: [{name: v, mountPath: /v}]}],
		containers: [{name: c, image: `+busybox+`, command: [sh, -c, "echo round $ROUND; [ $ROUND = 2 ] && exit 0; touch /v/up; trap 'exit 1' TERM; sleep 4321 & wait"], volumeMounts: [{name: v, mountPath: /v}],
				env: [{name: ROUND, valueFrom: {fileKeyRef: {volumeName: v, path: env, key: ROUND, optional: false}}}]},
			{name: watch, image: `+busybox+`, command: [sh, -c, "[ -e /v/again ] && exit 0; until [ -e /v/up ]; do sleep 0.1; done; touch /v/again; exit 88"], volumeMounts: [{name: v, mountPath: /v}],
				restartPolicy: Never, restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [88]}}]}]`)
	pod("stuck", `initContainers: [{name: wait, `+sleeper+`}, {name: next, `+sleeper+`}], containers: [{name: c, `+sleeper+`}]`)
	pod("memory", `volumes: [{name: v, emptyDir: {medium: Memory}}], containers: [{name: c, image: `+busybox+`, resources: {limits: {cpu: 100m, memory: 96Mi}, requests: {cpu: 100m, memory: 96Mi}},
		command: [sh, -c, "dd if=/dev/zero of=/v/x bs=1024 count=40960 && touch /up; trap exit TERM; sleep 4321 & wait"], volumeMounts: [{name: v, mountPath: /v}],
		readinessProbe: {exec: {command: [test, -e, /up]}, periodSeconds: 1, timeoutSeconds: 60}}]`)

	for name, check := range map[string]func(*testing.T, *machine){
		"mounts reach where they are to": checkPropagation, "the signal that stops is chosen": checkSignal, "a rule starts all anew": checkRound,
		"an ephemeral container sees a stuck one": checkDebugging, "no limit below what is in use": checkShrinking,
	} {
		t.Run(name, func(t *testing.T) {
			m.T = t
			check(t, m)
		})
		m.T = t
	}
	for _, name := range []string{"mounts", "signal", "round", "stuck", "memory"} {
		apitest.DeletePod(t, m.api, name, 2)
	}
	for _, name := range []string{"mounts", "signal", "round", "stuck", "memory"} {
		m.wait(name, "gone", func(p *v1.Pod) bool { return p == nil })
	}
}

// sharedDir is a directory whose mounts others see, with a file system at sub.
func sharedDir(t *testing.T, dir string) string {
	t.Helper()
	t.Cleanup(func() {
		for unix.Unmount(dir, unix.MNT_DETACH) == nil { // with all that is below
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := errors.Join(
		os.Mkdir(dir, 0o755), unix.Mount(dir, dir, "", unix.MS_BIND, ""), unix.Mount("", dir, "", unix.MS_SHARED, ""),
		os.Mkdir(dir+"/sub", 0o755), unix.Mount("tmpfs", dir+"/sub", "tmpfs", 0, ""), os.Mkdir(dir+"/late", 0o755),
	); err != nil {
		t.Fatal(err)
	}
	return dir
}

// execIn runs a command in a container of a pod.
func (m *machine) execIn(pod, container string, command ...string) string {
	m.Helper()
	for _, s := range apitest.GetPod(m.T, m.api, pod).Status.ContainerStatuses {
		if s.Name != container {
			continue
		}
		resp, err := m.cri.Runtime.ExecSync(m.Context(), &runtimeapi.ExecSyncRequest{ContainerId: strings.TrimPrefix(s.ContainerID, "containerd://"), Cmd: command})
		if err != nil {
			m.Fatalf("exec %v in %s/%s: %v", command, pod, container, err)
		}
		return string(resp.Stdout) + string(resp.Stderr)
	}
	m.Fatalf("no container %s in %s", container, pod)
	return ""
}

func checkPropagation(t *testing.T, m *machine) {
	trace.Proves(t, "KEP-3857")
	p := m.ready("mounts")
	dir := m.dir + "/shared"
	m.eventually("the container's own mount on the host", func() bool {
		_, err := os.Stat(dir + "/own/file")
		return err == nil
	})
	if err := errors.Join(unix.Mount("tmpfs", dir+"/late", "tmpfs", 0, ""), os.WriteFile(filepath.Join(dir, "late/file"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for container, want := range map[string]string{"c": "/h/late/file\n", "slave": "/h/late/file\n", "private": "ls: /h/late/file: No such file or directory\n"} {
		if got := m.execIn("mounts", container, "ls", "/h/late/file"); got != want {
			t.Errorf("the host's later mount in %s: got %q, want %q", container, got, want)
		}
	}
	if got := m.execIn("mounts", "private", "sh", "-c", "touch /all/sub/f; touch /top/f; touch /top/sub/f && echo written"); !strings.Contains(got, "/all/sub/f: Read-only file system") ||
		!strings.Contains(got, "/top/f: Read-only file system") || !strings.HasPrefix(got, "written\n") {
		t.Errorf("read-only mounts: got %q", got)
	}
	var modes []string
	for _, s := range p.Status.ContainerStatuses {
		for _, v := range s.VolumeMounts {
			if v.RecursiveReadOnly != nil {
				modes = append(modes, v.MountPath+" "+string(*v.RecursiveReadOnly))
			}
		}
	}
	if got := fmt.Sprint(modes); got != "[/all Enabled /top Disabled]" {
		t.Errorf("status of read-only mounts: got %s", got)
	}
}

func checkSignal(t *testing.T, m *machine) {
	trace.Proves(t, "KEP-4960", "KEP-2238")
	p := m.finished("signal")
	if end := p.Status.ContainerStatuses[0].State.Terminated; p.Status.Phase != v1.PodSucceeded || end.ExitCode != 0 || end.Message != "usr1" {
		t.Errorf("got %s %+v, want the end by SIGUSR1", p.Status.Phase, end)
	}
}

func checkRound(t *testing.T, m *machine) {
	trace.Proves(t, "KEP-5532", "KEP-3721")
	p := m.finished("round")
	for _, s := range append(p.Status.InitContainerStatuses, p.Status.ContainerStatuses...) {
		if s.RestartCount != 1 || s.State.Terminated == nil || s.State.Terminated.ExitCode != 0 {
			t.Errorf("got %+v, want the end of a second life", s)
		}
	}
	if code, got := m.get("/containerLogs/default/round/c"); p.Status.Phase != v1.PodSucceeded || code != 200 || got != "round 2\n" {
		t.Errorf("got %s, log %d %q; want the variable of the second round", p.Status.Phase, code, got)
	}
}

func checkDebugging(t *testing.T, m *machine) {
	trace.Proves(t, "EPH-001", "EPH-005", "KEP-277")
	m.wait("stuck", "initializing", func(p *v1.Pod) bool {
		return len(p.Status.InitContainerStatuses) == 2 && p.Status.InitContainerStatuses[0].State.Running != nil
	})
	for _, name := range []string{"next", "c"} {
		if code, got := m.get("/containerLogs/default/stuck/" + name); code != 400 || got != `container "`+name+`" in pod "stuck" is waiting to start: PodInitializing` {
			t.Errorf("log of %s, whose turn has not come: got %d %q", name, code, got)
		}
	}
	p := apitest.GetPod(t, m.api, "stuck").DeepCopy()
	p.Spec.EphemeralContainers = []v1.EphemeralContainer{{
		EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug", Image: busybox, Command: []string{"ps"}},
		TargetContainerName:      "wait",
	}}
	if _, err := apitest.Pods(m.api).UpdateSub(t.Context(), "ephemeralcontainers", p); err != nil {
		t.Fatal(err)
	}
	m.wait("stuck", "debugged", func(p *v1.Pod) bool {
		s := p.Status.EphemeralContainerStatuses
		return len(s) == 1 && s[0].State.Terminated != nil
	})
	if code, got := m.get("/containerLogs/default/stuck/debug"); code != 200 || !strings.Contains(got, "sleep 4321") {
		t.Errorf("processes as the ephemeral container sees them: got %d %q", code, got)
	}
}

func checkShrinking(t *testing.T, m *machine) {
	trace.Proves(t, "EMPTY-011", "KEP-1287")
	p := m.ready("memory").DeepCopy()
	less := v1.ResourceList{v1.ResourceCPU: resource.MustParse("100m"), v1.ResourceMemory: resource.MustParse("24Mi")}
	p.Spec.Containers[0].Resources = v1.ResourceRequirements{Limits: less, Requests: less}
	if _, err := apitest.Pods(m.api).UpdateSub(t.Context(), "resize", p); err != nil {
		t.Fatal(err)
	}
	p = m.wait("memory", "told that it uses more", func(p *v1.Pod) bool {
		c := core.PodCondition(&p.Status, v1.PodResizeInProgress)
		return c != nil && c.Reason == "Error" && strings.Contains(c.Message, `attempting to set container "c" memory limit (25165824) below current usage (`)
	})
	if s := p.Status.ContainerStatuses[0]; s.RestartCount != 0 || s.Resources.Limits.Memory().Value() != 96<<20 {
		t.Errorf("got %+v, want it to go on as before", s)
	}
}
