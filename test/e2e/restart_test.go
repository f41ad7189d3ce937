package e2e

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/test/wait"
)

// containers maps the containers of pods that are not being deleted to what
// must not change when nothing happens to them.
func (c *cluster) containers(t *testing.T, namespace, selector string) map[string]string {
	t.Helper()
	list := map[string]string{}
	for _, pod := range c.pods(t, namespace, selector) {
		for _, s := range pod.Status.ContainerStatuses {
			if s.State.Running != nil && pod.DeletionTimestamp == nil {
				list[pod.Name+"/"+s.Name] = fmt.Sprintf("%s, started %s, %d restarts, pod %s at %s", s.ContainerID, s.State.Running.StartedAt.UTC(), s.RestartCount, pod.UID, pod.Status.PodIP)
			}
		}
	}
	return list
}

// wantSame fails the test if containers are not those from before.
func wantSame(t *testing.T, before, after map[string]string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if after[name] != before[name] {
			t.Errorf("container %s\nwas %s\nis  %s", name, before[name], after[name])
		}
	}
}

// wantNoOrphans waits until the runtime has exactly the pods and containers of the API.
func (c *cluster) wantNoOrphans(t *testing.T) {
	t.Helper()
	wait.Until(t, func() error {
		want := map[string]string{}
		pods := c.pods(t, "", "")
		for _, pod := range pods {
			if pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil {
				return fmt.Errorf("pod %s is %s, deletion %v", pod.Name, pod.Status.Phase, pod.DeletionTimestamp)
			}
			for _, s := range pod.Status.ContainerStatuses {
				want[strings.TrimPrefix(s.ContainerID, "containerd://")] = pod.Name
			}
		}
		tasks, err := os.ReadDir(filepath.Join(c.RunDir, "containerd/io.containerd.runtime.v2.task/k8s.io"))
		if err != nil {
			return err
		}
		others := 0
		for _, task := range tasks {
			if want[task.Name()] == "" {
				others++
			}
			delete(want, task.Name())
		}
		if len(want) > 0 || others != len(pods) {
			return fmt.Errorf("containers of the API that do not run: %v; further tasks: %d, want %d sandboxes", want, others, len(pods))
		}
		return nil
	})
}

// TestRestartsWithoutTouchingContainers stops the server and starts it again:
// whatever runs goes on, and the service answers all the time.
func TestRestartsWithoutTouchingContainers(t *testing.T) {
	t.Parallel()
	trace.Proves(t, "SVC-049")
	c := newCluster(t)
	k := c.kubectl()
	k.apply(t, string(must(os.ReadFile("../../examples/web.yaml"))(t)))
	k.rolledOut(t, "web")
	url := "http://" + machineIP + ":30080/"
	wait.Until(t, func() error { _, err := get(c.neighbour, url); return err })
	before := c.containers(t, "default", "app=web")
	l := startLoad(t, c.neighbour, url)
	c.wantNoComplaints(t)
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		c.kill(signal)
		if o := c.run(t.Context(), nil, c.bin, "status", "--data-dir", c.DataDir, "--run-dir", c.RunDir); o.code != 3 || !strings.Contains(o.stdout, "no server is running") {
			t.Errorf("status while stopped: got %+v", o)
		}
		t.Logf("ready %s after %v", c.serve(t), signal)
		c.await(t, "default", c.pods(t, "default", "app=web")[0].Name, isReady)
		wantSame(t, before, c.containers(t, "default", "app=web"))
		trace.Proves(t, "OBJ-001")
		k.wants(t, []string{"serving"}, "logs", "deployment/web")
		k.wants(t, []string{"web-"}, "exec", "deployment/web", "--", "hostname")
	}
	k.do(t, "scale", "deployment/web", "--replicas=4")
	k.rolledOut(t, "web")
	wantSame(t, before, c.containers(t, "default", "app=web"))
	l.end(t, "1")
	c.wantNoOrphans(t)
}

// acknowledged creates objects until it is stopped and returns those that the server confirmed.
type acknowledged struct {
	wg    sync.WaitGroup
	stop  context.CancelFunc
	names []string
}

func (c *cluster) writeObjects(t *testing.T, prefix string) *acknowledged {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	a := &acknowledged{stop: cancel}
	a.wg.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			name := fmt.Sprintf("%s-%d", prefix, i)
			if _, err := c.client.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err == nil {
				a.names = append(a.names, name)
				continue
			}
			select { // nobody answers; whoever is to needs the processor
			case <-time.After(10 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	})
	t.Cleanup(func() { cancel(); a.wg.Wait() })
	return a
}

// wantAll expects every confirmed object to be there.
func (a *acknowledged) wantAll(t *testing.T, c *cluster) {
	t.Helper()
	a.stop()
	a.wg.Wait()
	list, err := c.client.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	for _, cm := range list.Items {
		there[cm.Name] = true
	}
	lost := 0
	for _, name := range a.names {
		if !there[name] {
			lost++
		}
	}
	t.Logf("%d objects were confirmed", len(a.names))
	if lost > 0 || len(a.names) == 0 {
		t.Errorf("%d of %d confirmed objects are lost", lost, len(a.names))
	}
}

// TestSurvivesKillsDuringRollouts kills the server in the middle of rollouts
// and of writes: the rollouts complete, and nothing is lost, left over or restarted.
func TestSurvivesKillsDuringRollouts(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	k := c.kubectl()
	k.do(t, "create", "deployment", "bystander", "--image=kemudi.local/web:1", "--replicas=2")
	k.apply(t, strings.Replace(string(must(os.ReadFile("../../examples/web.yaml"))(t)), "replicas: 3", "replicas: 4", 1))
	k.rolledOut(t, "bystander")
	k.rolledOut(t, "web")
	before := c.containers(t, "default", "app=bystander")
	for i, moment := range []func(new int) bool{
		func(created int) bool { return created >= 1 },
		func(created int) bool { return created >= 3 },
	} {
		version := 2 - i%2
		objects := c.writeObjects(t, fmt.Sprintf("round-%d", i))
		k.do(t, "set", "image", "deployment/web", fmt.Sprintf("web=kemudi.local/web:%d", version))
		wait.Until(t, func() error {
			created := 0
			for _, pod := range c.pods(t, "default", "app=web") {
				if strings.HasSuffix(pod.Spec.Containers[0].Image, fmt.Sprint(version)) {
					created++
				}
			}
			if !moment(created) {
				return fmt.Errorf("%d pods of the new version", created)
			}
			return nil
		})
		c.kill(syscall.SIGKILL)
		t.Logf("round %d: ready again after %s", i, c.serve(t))
		objects.wantAll(t, c)
		k.rolledOut(t, "web")
		wait.Until(t, func() error {
			if n := len(c.pods(t, "default", "app=web")); n != 4 {
				return fmt.Errorf("%d pods, want 4", n)
			}
			return nil
		})
		wantSame(t, before, c.containers(t, "default", "app=bystander"))
		c.wantNoOrphans(t)
		for _, pod := range c.pods(t, "default", "app=web") {
			if pod.Status.ContainerStatuses[0].RestartCount != 0 {
				t.Errorf("pod %s restarted: %s", pod.Name, states(&pod))
			}
		}
	}
}

// TestRefusesASecondServer starts another server on the same directories.
func TestRefusesASecondServer(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	for _, tc := range []struct {
		name string
		args []string
		want string
	}{
		{"same directories", []string{"--data-dir", c.DataDir, "--run-dir", c.RunDir}, "a server or an agent is running already (process " + fmt.Sprint(c.proc.Process.Pid)},
		{"same data", []string{"--data-dir", c.DataDir, "--run-dir", c.RunDir + "x", "--secure-port", "7443"}, c.DataDir},
		{"same port", []string{"--data-dir", c.DataDir + "x", "--run-dir", c.RunDir + "x", "--disable-agent"}, "address already in use; is another server running, or is --secure-port taken?"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
		o := c.run(ctx, nil, append([]string{c.bin, "server"}, tc.args...)...)
		cancel()
		lines := strings.Split(strings.TrimSpace(o.stderr), "\n")
		if last := lines[len(lines)-1]; o.code != 1 || !strings.Contains(last, tc.want) {
			t.Errorf("%s: got exit code %d, last line %q; want 1 and %q", tc.name, o.code, last, tc.want)
		}
		for _, dir := range []string{c.RunDir + "x", c.DataDir + "x"} {
			if err := os.RemoveAll(dir); err != nil {
				t.Error(err)
			}
		}
	}
	c.kubectl().wants(t, []string{" Ready "}, "get", "nodes")
	c.create(t, "default", "metadata: {name: after}\nspec: {terminationGracePeriodSeconds: 0, containers: [{name: c, image: kemudi.local/agnhost:1}]}\n")
	c.await(t, "default", "after", isReady)
}
