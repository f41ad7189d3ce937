package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/test/wait"
)

// TestClusterIsTakenOverByAnotherMachine has a machine continue the cluster of another one, from
// the directory of its store and with its keys: objects are as they were, and what ran on the
// machine that is gone runs on the new one.
func TestClusterIsTakenOverByAnotherMachine(t *testing.T) {
	t.Parallel()
	enter(t, 1) // one server at a time
	old := makeMachine(t)
	web := old.images[slices.IndexFunc(old.images, func(file string) bool { return filepath.Base(file) == "web-1.tar" })]
	command := func(m *machine, want int, args ...string) output {
		t.Helper()
		o := m.run(t.Context(), nil, append([]string{m.bin, args[0], "--data-dir", m.DataDir, "--run-dir", m.RunDir}, args[1:]...)...)
		if o.code != want {
			t.Fatalf("%v: exit code %d, want %d\n%s", args, o.code, want, o.all())
		}
		return o
	}
	command(old, 0, "up", "--kubeconfig", "", "--import", web, "--", "--pod-logs-dir", old.LogsDir, "--node-name", "one")
	before := &cluster{machine: old}
	before.connect(t)
	k := before.kubectl()
	k.do(t, "create", "deployment", "web", "--image=kemudi.local/web:1", "--replicas=2")
	k.rolledOut(t, "web")
	service := must(before.client.CoreV1().Services("default").Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 8080}}},
	}, metav1.CreateOptions{}))(t)
	was := must(before.client.AppsV1().Deployments("default").Get(t.Context(), "web", metav1.GetOptions{}))(t)

	next := makeMachine(t)
	from := []string{"up", "--kubeconfig", "", "--from-etcd", filepath.Join(old.DataDir, "etcd"), "--from-pki", filepath.Join(old.DataDir, "pki"), "--import", web, "--", "--pod-logs-dir", next.LogsDir, "--node-name", "two"}
	if o := command(next, 1, from...); !strings.Contains(o.stderr, "is in use: stop the etcd that has it open") {
		t.Errorf("while it runs: got %s", o.all())
	}
	// A backup that was made meanwhile has all of it, too; nothing else of the old machine is needed.
	backup := t.TempDir()
	write := func(name string) output {
		return old.run(t.Context(), nil, old.bin, "backup", "--data-dir", old.DataDir, filepath.Join(backup, name))
	}
	if o := write("all.tgz"); o.code != 0 || !strings.Contains(o.stdout, "wrote ") {
		t.Fatalf("a backup ended with %d: %s", o.code, o.all())
	}
	if out, err := exec.CommandContext(t.Context(), "tar", "-C", backup, "-xzf", filepath.Join(backup, "all.tgz")).CombinedOutput(); err != nil {
		t.Fatalf("unpack the backup: %v\n%s", err, out)
	}
	command(old, 0, "down")
	if o := write("none.tgz"); o.code == 0 || !strings.Contains(o.stderr, "refused") {
		t.Errorf("a backup of what does not run ended with %d: %s", o.code, o.all())
	}
	if left := must(filepath.Glob(filepath.Join(backup, "*none*")))(t); len(left) > 0 {
		t.Errorf("it left %v", left)
	}
	from[slices.Index(from, "--from-etcd")+1], from[slices.Index(from, "--from-pki")+1] = filepath.Join(backup, "snapshot.db"), filepath.Join(backup, "pki")
	if o := command(next, 0, from...); !strings.Contains(o.stdout, "took over ") || !strings.Contains(o.stdout, "copied the store of ") {
		t.Errorf("got %s", o.all())
	}
	after := &cluster{machine: next}
	after.connect(t)
	k = after.kubectl()
	trace.Proves(t, "COMP-008", "COMP-009")
	is := must(after.client.AppsV1().Deployments("default").Get(t.Context(), "web", metav1.GetOptions{}))(t)
	if is.UID != was.UID || !is.CreationTimestamp.Equal(&was.CreationTimestamp) {
		t.Errorf("got deployment %s of %s, want %s of %s", is.UID, is.CreationTimestamp, was.UID, was.CreationTimestamp)
	}
	again := must(after.client.CoreV1().Services("default").Get(t.Context(), "web", metav1.GetOptions{}))(t)
	if again.Spec.ClusterIP != service.Spec.ClusterIP {
		t.Errorf("got address %s of the service, want %s", again.Spec.ClusterIP, service.Spec.ClusterIP)
	}
	k.do(t, "delete", "node", "one") // it will not come back
	wait.Until(t, func() error {
		pods := after.pods(t, "default", "app=web")
		for i := range pods {
			if pods[i].Spec.NodeName != "two" {
				return fmt.Errorf("pod %s is on node %s", pods[i].Name, pods[i].Spec.NodeName)
			}
			if err := isReady(&pods[i]); err != nil {
				return err
			}
		}
		if len(pods) != 2 {
			return fmt.Errorf("%d pods, want 2", len(pods))
		}
		return nil
	})
	wait.Until(t, func() error {
		got, err := get(next.host, "http://"+service.Spec.ClusterIP+":8080/")
		if err == nil && !strings.HasSuffix(got, " 1\n") {
			err = fmt.Errorf("the service: got %q", got)
		}
		return err
	})
	// The old machine's access is good for the new one, as the keys are.
	o := next.run(t.Context(), nil, next.bin, "kubectl", "--kubeconfig", old.adminKubeconfig(), "get", "deployment", "web", "-o", "name")
	if o.code != 0 || !strings.Contains(o.stdout, "deployment.apps/web") {
		t.Errorf("with the old access: got %s", o.all())
	}
	if o := command(next, 0, from...); !strings.Contains(o.stdout, "the server runs already") {
		t.Errorf("once more: got %s", o.all())
	}
}
