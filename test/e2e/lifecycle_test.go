package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiwatch "k8s.io/apimachinery/pkg/watch"

	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/test/wait"
)

// testRestarts ends containers, well and badly, under each restart policy.
func testRestarts(t *testing.T, c *cluster) {
	ns := c.namespace(t)
	// Succeeds in its second life.
	twice := "'echo x >> /d/lives; [ $(wc -l < /d/lives) = 2 ]'"
	run := func(name, policy, script string) string {
		return fmt.Sprintf("metadata: {name: %s}\nspec:\n  restartPolicy: %s\n  terminationGracePeriodSeconds: 0\n  containers:\n  - {name: c, image: kemudi.local/busybox:1, command: [sh, -c, %s], volumeMounts: [{name: d, mountPath: /d}]}\n  volumes: [{name: d, emptyDir: {}}]\n", name, policy, script)
	}
	t.Run("never", func(t *testing.T) {
		t.Parallel()
		pod, _ := c.finish(t, ns, run("ends", "Never", "exit 0"))
		end := pod.Status.ContainerStatuses[0].State.Terminated
		trace.Proves(t, "PLC-006", "PLC-081")
		if pod.Status.Phase != corev1.PodSucceeded || end.Reason != "Completed" || end.ExitCode != 0 || end.FinishedAt.Before(&end.StartedAt) || pod.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("got phase %s, %+v; want Succeeded, Completed, 0", pod.Status.Phase, end)
		}
		pod, _ = c.finish(t, ns, run("fails", "Never", "exit 3"))
		end = pod.Status.ContainerStatuses[0].State.Terminated
		trace.Proves(t, "PLC-007", "PLC-085", "C-270")
		if pod.Status.Phase != corev1.PodFailed || end.Reason != "Error" || end.ExitCode != 3 || pod.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("got phase %s, %+v; want Failed, Error, 3", pod.Status.Phase, end)
		}
		trace.Proves(t, "PLC-049")
		c.kubectl().in(ns).wants(t, []string{"State:          Terminated", "Reason:       Completed", "Exit Code:    0", "Started:", "Finished:"}, "describe", "pod", "ends")
	})
	t.Run("on failure", func(t *testing.T) {
		t.Parallel()
		trace.Proves(t, "PLC-080", "PLC-084")
		pod, _ := c.finish(t, ns, run("retries", "OnFailure", twice))
		s := pod.Status.ContainerStatuses[0]
		if pod.Status.Phase != corev1.PodSucceeded || s.RestartCount != 1 || s.LastTerminationState.Terminated == nil || s.LastTerminationState.Terminated.ExitCode != 1 {
			t.Errorf("got phase %s, %+v; want Succeeded after one restart", pod.Status.Phase, s)
		}
	})
	t.Run("always, until it stays", func(t *testing.T) {
		t.Parallel()
		trace.Proves(t, "C-250", "PLC-078", "PLC-079", "PLC-087")
		c.create(t, ns, run("settles", "Always", "'echo x >> /d/lives; [ $(wc -l < /d/lives) = 3 ] && exec sleep 1000; exit 0'"))
		pod := c.await(t, ns, "settles", func(pod *corev1.Pod) error { return or(hasRestarted(2)(pod), isReady(pod)) })
		if s := pod.Status.ContainerStatuses[0]; pod.Status.Phase != corev1.PodRunning || s.RestartCount != 2 || s.State.Running == nil {
			t.Errorf("got phase %s, %+v; want Running after two restarts", pod.Status.Phase, s)
		}
	})
	t.Run("always", func(t *testing.T) {
		t.Parallel()
		c.create(t, ns, run("crashes", "Always", "exit 1"))
		c.await(t, ns, "crashes", isWaiting("CrashLoopBackOff"))
		trace.Proves(t, "PLC-082")
		c.awaitEvent(t, ns, "crashes", "BackOff", "Back-off restarting failed container c in pod crashes")
		pod := c.await(t, ns, "crashes", func(pod *corev1.Pod) error { return or(hasRestarted(2)(pod), isWaiting("CrashLoopBackOff")(pod)) })
		trace.Proves(t, "PLC-033", "PLC-083")
		if pod.Status.Phase != corev1.PodRunning {
			t.Errorf("phase after two restarts: got %s, want Running", pod.Status.Phase)
		}
		// The first restart is at once, each further one waits twice as long.
		s := pod.Status.ContainerStatuses[0]
		pause := min(10*time.Second<<(s.RestartCount-1), 5*time.Minute)
		last := s.LastTerminationState.Terminated
		trace.Proves(t, "PLC-062", "WHAT-024")
		if last == nil || last.ExitCode != 1 || !strings.Contains(s.State.Waiting.Message, "back-off "+pause.String()+" restarting failed container=c") {
			t.Errorf("got %+v; want a last end with code 1 and a back-off of %s", s, pause)
		}
	})
}

// waitsForServices runs a pod whose init containers wait until two names can be looked up.
func (c *cluster) waitsForServices(t *testing.T) {
	t.Helper()
	k := c.kubectl().in(c.namespace(t))
	until := func(name string) string {
		return fmt.Sprintf("{name: init-%s, image: kemudi.local/busybox:1, command: [sh, -c, 'until nslookup %s.%s.svc.cluster.local; do echo waiting for %s; sleep 0.2; done']}", name, name, k.namespace, name)
	}
	k.apply(t, "apiVersion: v1\nkind: Pod\nmetadata: {name: myapp-pod, labels: {app: myapp}}\nspec:\n  terminationGracePeriodSeconds: 0\n"+
		"  initContainers: ["+until("myservice")+", "+until("mydb")+"]\n  containers: [{name: myapp-container, image: kemudi.local/busybox:1, command: [sh, -c, 'echo The app is running! && sleep 3600']}]\n")
	c.await(t, k.namespace, "myapp-pod", func(pod *corev1.Pod) error {
		if s := pod.Status.InitContainerStatuses; len(s) != 2 || s[0].State.Running == nil {
			return fmt.Errorf("the first init container is not running")
		}
		return nil
	})
	trace.Proves(t, "INIT-023")
	k.wants(t, []string{
		"Status:           Pending\n", "Init Containers:\n  init-myservice:\n", "    State:          Running\n", "  init-mydb:\n", "    State:          Waiting\n      Reason:       PodInitializing\n    Ready:          False\n",
	}, "describe", "pod", "myapp-pod")
	services := ""
	for _, name := range []string{"myservice", "mydb"} {
		services += "---\napiVersion: v1\nkind: Service\nmetadata: {name: " + name + "}\nspec: {ports: [{port: 80}]}\n"
	}
	k.apply(t, services)
	c.await(t, k.namespace, "myapp-pod", isReady)
	trace.Proves(t, "INIT-021", "INIT-026")
	k.wants(t, []string{"myapp-pod   1/1     Running   0 "}, "get", "pod", "myapp-pod")
	for _, e := range []struct{ id, reason, message string }{
		{"INIT-024/Pulled", "Pulled", `spec.initContainers{init-mydb}: Container image "kemudi.local/busybox:1" already present on machine`},
		{"INIT-024/Created", "Created", "spec.initContainers{init-mydb}: Container created"},
	} {
		trace.Proves(t, e.id)
		c.awaitEvent(t, k.namespace, "myapp-pod", e.reason, e.message)
	}
}

// testInitContainers runs containers before the others, in order.
func testInitContainers(t *testing.T, c *cluster) {
	ns := c.namespace(t)
	const order = `
metadata: {name: %s}
spec:
  restartPolicy: %s
  terminationGracePeriodSeconds: 0
  initContainers:
  - {name: one, image: kemudi.local/busybox:1, command: [sh, -c, '%s'], volumeMounts: [{name: d, mountPath: /d}]}
  - {name: two, image: kemudi.local/busybox:1, command: [sh, -c, 'echo two >> /d/order'], volumeMounts: [{name: d, mountPath: /d}]}
  containers:
  - {name: app, image: kemudi.local/busybox:1, command: [sh, -c, 'cat /d/order; %s'], volumeMounts: [{name: d, mountPath: /d}]}
  volumes: [{name: d, emptyDir: {}}]
`
	t.Run("in order, then the app", func(t *testing.T) {
		t.Parallel()
		made := c.create(t, ns, fmt.Sprintf(order, "good", "Never", "until [ -e /d/go ]; do sleep 0.1; done; echo one >> /d/order", ":"))
		pod := c.await(t, ns, made.Name, func(pod *corev1.Pod) error {
			if len(pod.Status.InitContainerStatuses) == 0 || pod.Status.InitContainerStatuses[0].State.Running == nil {
				return fmt.Errorf("the first init container is not running")
			}
			return hasCondition(pod, corev1.PodInitialized, corev1.ConditionFalse)
		})
		k := c.kubectl().in(ns)
		trace.Proves(t, "INIT-008", "INIT-030")
		if got := k.do(t, "get", "pod", "good"); pod.Status.Phase != corev1.PodPending || !strings.Contains(got, "Init:0/2") {
			t.Errorf("status while the first runs: got %s, %q, want Pending, Init:0/2", pod.Status.Phase, got)
		}
		k.do(t, "exec", "good", "-c", "one", "--", "touch", "/d/go")
		pod = c.await(t, ns, made.Name, hasEnded)
		trace.Proves(t, "INIT-001", "INIT-005", "INIT-012")
		if got := c.logs(t, ns, made.Name, corev1.PodLogOptions{Container: "app"}); got != "one\ntwo\n" {
			t.Errorf("order: got %q, want one, two", got)
		}
		trace.Proves(t, "INIT-030", "PLC-018")
		if err := hasCondition(pod, corev1.PodInitialized, corev1.ConditionTrue); err != nil {
			t.Error(err)
		}
		trace.Proves(t, "C-265")
		const ended = "one: terminated, Completed 0 , 0 restarts; two: terminated, Completed 0 , 0 restarts; app: terminated, Completed 0 , 0 restarts"
		if got := states(pod); pod.Status.Phase != corev1.PodSucceeded || got != ended {
			t.Errorf("in the end: got %s, %s, want Succeeded, %s", pod.Status.Phase, got, ended)
		}
		trace.Proves(t, "INIT-024/Started")
		c.awaitEvent(t, ns, made.Name, "Started", "spec.initContainers{two}: Container started")
	})
	t.Run("waiting for services", func(t *testing.T) {
		t.Parallel()
		c.waitsForServices(t)
	})
	t.Run("failing for good", func(t *testing.T) {
		t.Parallel()
		trace.Proves(t, "INIT-007", "C-266")
		pod := c.create(t, ns, fmt.Sprintf(order, "bad", "Never", "exit 1", ":"))
		pod = c.await(t, ns, pod.Name, hasEnded)
		app := pod.Status.ContainerStatuses[0]
		if pod.Status.Phase != corev1.PodFailed || app.State.Waiting == nil || app.State.Waiting.Reason != "PodInitializing" {
			t.Errorf("got phase %s, app %+v; want Failed, waiting for PodInitializing", pod.Status.Phase, app.State)
		}
	})
	t.Run("failing and tried again", func(t *testing.T) {
		t.Parallel()
		trace.Proves(t, "INIT-006", "INIT-028", "C-267")
		c.create(t, ns, fmt.Sprintf(order, "again", "Always", "exit 1", "sleep 1000"))
		pod := c.await(t, ns, "again", func(pod *corev1.Pod) error {
			if s := pod.Status.InitContainerStatuses; len(s) == 0 || s[0].RestartCount < 1 {
				return fmt.Errorf("the first init container was not restarted")
			}
			return nil
		})
		if pod.Status.Phase != corev1.PodPending || pod.Status.ContainerStatuses[0].State.Waiting == nil {
			t.Errorf("got phase %s, %s; want Pending", pod.Status.Phase, states(pod))
		}
	})
	t.Run("sidecar", func(t *testing.T) {
		t.Parallel()
		trace.Proves(t, "KEP-753")
		pod, got := c.finish(t, ns, `
metadata: {name: sidecar}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  initContainers:
  - {name: side, image: kemudi.local/busybox:1, restartPolicy: Always, command: [sh, -c, 'mkdir /w; echo beside > /w/f; exec httpd -f -p 8000 -h /w'], startupProbe: {tcpSocket: {port: 8000}, periodSeconds: 1, failureThreshold: 1000}}
  containers:
  - {name: app, image: kemudi.local/busybox:1, command: [sh, -c, 'wget -q -O - http://127.0.0.1:8000/f']}
`)
		if pod.Status.Phase != corev1.PodSucceeded || got != "beside\n" {
			t.Errorf("got phase %s, %q; want Succeeded with the sidecar's answer", pod.Status.Phase, got)
		}
	})
}

// testEndings looks at what containers leave as their last words.
func testEndings(t *testing.T, c *cluster) {
	trace.Proves(t, "C-247", "C-248")
	ns := c.namespace(t)
	for _, tc := range []struct{ name, script, field, want string }{
		{"file", "printf OK > /dev/termination-log", "", "OK"},
		{"own-file", "printf mine > /tmp/last; exit 1", "terminationMessagePath: /tmp/last", "mine"},
		{"log", "echo one; echo DONE; exit 1", "terminationMessagePolicy: FallbackToLogsOnError", "one\nDONE\n"},
		{"log-not-needed", "echo DONE", "terminationMessagePolicy: FallbackToLogsOnError", ""},
		{"file-before-log", "echo DONE; printf OK > /dev/termination-log", "terminationMessagePolicy: FallbackToLogsOnError", "OK"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			manifest := strings.TrimSuffix(script(tc.name, tc.script), "\n") + "\n"
			if tc.field != "" {
				manifest += "    " + tc.field + "\n"
			}
			pod := c.create(t, ns, manifest)
			pod = c.await(t, ns, pod.Name, hasEnded)
			if got := pod.Status.ContainerStatuses[0].State.Terminated.Message; got != tc.want {
				t.Errorf("message: got %q, want %q", got, tc.want)
			}
		})
	}
}

// testDeletion stops pods: hooks first, then a signal, then by force.
func testDeletion(t *testing.T, c *cluster) {
	ns := c.namespace(t)
	dir := filepath.Join(c.Dir, "deletion")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	// A pod is ready before its script has got anywhere; armed says that it has.
	pod := func(t *testing.T, name, grace, script, lifecycle string) {
		t.Helper()
		c.create(t, ns, fmt.Sprintf("metadata: {name: %s}\nspec:\n  terminationGracePeriodSeconds: %s\n  containers:\n  - {name: c, image: kemudi.local/busybox:1, command: [sh, -c, %q], lifecycle: {%s}, volumeMounts: [{name: d, mountPath: /d}]}\n  volumes: [{name: d, hostPath: {path: %s}}]\n", name, grace, script, lifecycle, dir))
		c.await(t, ns, name, isReady)
		wait.Until(t, func() error { _, err := os.Stat(filepath.Join(dir, name+".armed")); return err })
	}
	said := func(name string) string {
		data, _ := os.ReadFile(filepath.Join(dir, name))
		return string(data)
	}
	t.Run("in order", func(t *testing.T) {
		t.Parallel()
		const place = "cat /proc/self/cgroup; for n in ipc mnt net pid uts; do readlink /proc/self/ns/$n; done"
		pod(t, "hooks", "3600", "trap 'echo term >> /d/hooks; exit 0' TERM; { "+place+"; } > /d/hooks.main; touch /d/hooks.armed; sleep 10000 & wait", "postStart: {exec: {command: [sh, -c, 'echo post >> /d/hooks; { "+place+"; } > /d/hooks.hook']}}, preStop: {exec: {command: [sh, -c, 'sleep 1; echo pre >> /d/hooks']}}")
		// It ends itself: nobody waits for the grace period to pass.
		c.kubectl().in(ns).do(t, "delete", "pod", "hooks", patient)
		got := said("hooks")
		trace.Proves(t, "HOOK-002", "HOOK-003", "HOOK-010/Exec", "PLC-046", "C-242")
		if !strings.HasPrefix(got, "post\n") {
			t.Errorf("got %q, want post, pre, term", got)
		}
		trace.Proves(t, "HOOK-002", "HOOK-006/API-request", "HOOK-008", "PLC-048", "C-244")
		if !strings.HasSuffix(got, "\npre\nterm\n") {
			t.Errorf("got %q, want post, pre, term", got)
		}
		trace.Proves(t, "HOOK-011", "HOOK-012")
		if hook, main := said("hooks.hook"), said("hooks.main"); hook != main || !strings.Contains(main, "mnt:[") || strings.Contains(main, must(os.Readlink("/proc/self/ns/mnt"))(t)) {
			t.Errorf("cgroups and namespaces of the hook: got %s, want the container's, %s", hook, main)
		}
	})
	t.Run("as somebody watches", func(t *testing.T) {
		t.Parallel()
		c.watchedLife(t, ns)
	})
	t.Run("by force after the grace period", func(t *testing.T) {
		t.Parallel()
		pod(t, "deaf", "5", "trap 'echo term >> /d/deaf' TERM; touch /d/deaf.armed; while true; do sleep 0.1; done", "")
		begin := time.Now()
		c.kubectl().in(ns).do(t, "delete", "pod", "deaf", "--wait=false")
		got, err := c.client.CoreV1().Pods(ns).Get(t.Context(), "deaf", metav1.GetOptions{})
		if err != nil || got.DeletionTimestamp == nil || *got.DeletionGracePeriodSeconds != 5 {
			t.Errorf("while it ends: got %v, %v; want a deletion time and 5 s of grace", got, err)
		}
		c.isGone(t, ns, "deaf")
		if took := time.Since(begin); took < 4*time.Second || said("deaf") != "term\n" {
			t.Errorf("deleting took %s, the container noted %q; want some 5 s, and the signal", took, said("deaf"))
		}
	})
	t.Run("with a hook that hangs", func(t *testing.T) {
		t.Parallel()
		pod(t, "hangs", "2", "touch /d/hangs.armed; sleep 10000", "preStop: {exec: {command: [sleep, '10000']}}")
		trace.Proves(t, "HOOK-017")
		begin := time.Now()
		c.kubectl().in(ns).do(t, "delete", "pod", "hangs", patient)
		if took := time.Since(begin); took < 2*time.Second {
			t.Errorf("deleting took %s; want that the hook has the grace period of 2 s", took)
		}
	})
	t.Run("now", func(t *testing.T) {
		t.Parallel()
		pod(t, "force", "3600", "trap : TERM; touch /d/force.armed; while true; do sleep 1; done", "")
		o := c.kubectl().in(ns).try(t, "", "delete", "pod", "force", "--force", "--grace-period=0")
		if o.code != 0 || !strings.Contains(o.stdout, `pod "force" force deleted`) {
			t.Errorf("got %+v", o)
		}
		c.isGone(t, ns, "force")
	})
	t.Run("hooks that fail", func(t *testing.T) {
		t.Parallel()
		trace.Proves(t, "HOOK-018", "HOOK-026", "HOOK-028")
		c.create(t, ns, "metadata: {name: nohook}\nspec:\n  terminationGracePeriodSeconds: 0\n  containers:\n  - {name: c, image: kemudi.local/busybox:1, command: [sleep, '1000'], lifecycle: {postStart: {exec: {command: ['false']}}}}\n")
		c.awaitEvent(t, ns, "nohook", "FailedPostStartHook", "")
		c.await(t, ns, "nohook", hasRestarted(1))
	})
	t.Run("at a deadline", func(t *testing.T) {
		t.Parallel()
		trace.Proves(t, "C-291")
		c.create(t, ns, "metadata: {name: deadline}\nspec:\n  activeDeadlineSeconds: 2\n  terminationGracePeriodSeconds: 0\n  containers:\n  - {name: c, image: kemudi.local/busybox:1, command: [sleep, '1000']}\n")
		got := c.await(t, ns, "deadline", hasEnded)
		if got.Status.Phase != corev1.PodFailed || got.Status.Reason != "DeadlineExceeded" {
			t.Errorf("got phase %s, reason %s; want Failed, DeadlineExceeded", got.Status.Phase, got.Status.Reason)
		}
	})
}

// watchedLife makes and deletes a pod and looks at what a watch by its label tells.
func (c *cluster) watchedLife(t *testing.T, ns string) {
	t.Helper()
	watch, err := c.client.CoreV1().Pods(ns).Watch(t.Context(), metav1.ListOptions{LabelSelector: "seen=yes"})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	c.create(t, ns, "metadata: {name: seen, labels: {seen: 'yes'}}\nspec:\n  terminationGracePeriodSeconds: 30\n  containers:\n  - {name: c, image: kemudi.local/agnhost:1}\n")
	c.await(t, ns, "seen", isReady)
	c.kubectl().in(ns).do(t, "delete", "pod", "seen", patient)
	var kinds []string
	var last *corev1.Pod
	for e := range watch.ResultChan() {
		last = e.Object.(*corev1.Pod)
		if kinds = append(kinds, string(e.Type)); e.Type == apiwatch.Deleted {
			break
		}
	}
	trace.Proves(t, "C-292")
	if left := c.pods(t, ns, "seen=yes"); kinds[0] != "ADDED" || last.DeletionTimestamp == nil || *last.Spec.TerminationGracePeriodSeconds == 0 || len(left) != 0 {
		t.Errorf("got %v, at last %+v, and %d pods are left; want ADDED and so on, a deletion time with a grace period, and none", kinds, last.ObjectMeta, len(left))
	}
}
