package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/podnet/nettest"
	"github.com/kemudi/kemudi/test/wait"
)

// Addresses of a machine with an agent, and of the router between it and the server.
const (
	agentIP       = "192.168.79.2"
	agentRouterIP = "192.168.79.1"
	agentName     = "agent"
)

// agent is an agent on a machine, of a cluster whose server is on another one.
type agent struct {
	*machine
	proc  *exec.Cmd // the running agent, or nil
	ended chan struct{}
}

// newAgent has another machine join the cluster, behind the neighbour of the first.
func (c *cluster) newAgent(t *testing.T) *agent {
	t.Helper()
	m := &machine{build: c.build, host: nettest.New(t, "agent"), neighbour: c.neighbour}
	nettest.Link(m.host, "eth0", m.neighbour, "eth1")
	m.host.Addr("eth0", agentIP+"/24")
	m.neighbour.Addr("eth1", agentRouterIP+"/24")
	m.neighbour.Router()
	m.host.Route("0.0.0.0/0", agentRouterIP)
	if c.router != "" {
		if o := m.run(t.Context(), strings.NewReader(c.router), "nsenter", "--net="+c.neighbour.Path(), "nft", "-f", "-"); o.code != 0 {
			t.Fatalf("give the router its rules: %s", o.all())
		}
	}
	return c.join(t, m, agentName, m.images...)
}

// join has a machine that is cabled become an agent of the cluster, with images.
func (c *cluster) join(t *testing.T, m *machine, name string, images ...string) *agent {
	t.Helper()
	a := &agent{machine: m.furnish(t)}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the log of %s:\n%s", name, tail(a.logFile(), 60))
		}
		a.kill(syscall.SIGTERM)
	})
	a.start(t, "--server", machineIP, "--token", c.token(t), "--node-name", name)
	wait.Until(t, func() error {
		node, err := c.client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, is := range node.Status.Conditions {
			if is.Type == corev1.NodeReady && is.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return errors.New("it is not ready")
	})
	o := a.run(t.Context(), nil, append([]string{a.bin, "image", "import", "--data-dir", a.DataDir, "--run-dir", a.RunDir}, images...)...)
	if o.code != 0 {
		t.Fatalf("import images: %s", o.all())
	}
	return a
}

// token makes a token to join the cluster with.
func (c *cluster) token(t *testing.T, flags ...string) string {
	t.Helper()
	o := c.run(t.Context(), nil, append([]string{c.bin, "token", "create", "--data-dir", c.DataDir}, flags...)...)
	lines := strings.Split(strings.TrimSpace(o.stdout), "\n")
	if o.code != 0 {
		t.Fatalf("make a token: %s", o.all())
	}
	return lines[len(lines)-1]
}

func (a *agent) logFile() string { return filepath.Join(a.Dir, "agent.log") }

// start starts the agent.
func (a *agent) start(t *testing.T, args ...string) {
	t.Helper()
	log, err := os.OpenFile(a.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := a.command(context.Background(), append([]string{
		a.bin, "agent", "--data-dir", a.DataDir, "--run-dir", a.RunDir, "--pod-logs-dir", a.LogsDir, "--node-name", agentName,
	}, args...)...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := a.machine.start(cmd); err != nil {
		t.Fatalf("start agent: %v", err)
	}
	ended := make(chan struct{})
	a.proc, a.ended = cmd, ended
	go func() { _ = cmd.Wait(); close(ended) }()
}

// kill sends the agent a signal and waits until it has ended.
func (a *agent) kill(s syscall.Signal) {
	if a.proc == nil {
		return
	}
	_ = a.proc.Process.Signal(s)
	select {
	case <-a.ended:
	case <-time.After(wait.Patience):
		_ = a.proc.Process.Kill()
		<-a.ended
	}
	a.proc = nil
}

// tasks are the processes of containers and sandboxes that run on the machine, by their IDs.
func (a *agent) tasks() (map[string]int, error) {
	dir := filepath.Join(a.RunDir, "containerd/io.containerd.runtime.v2.task/k8s.io")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	list := map[string]int{}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name(), "init.pid"))
		if err != nil {
			continue // it is about to start or has just gone
		}
		pid, err := strconv.Atoi(string(bytes.TrimSpace(text)))
		if err == nil && syscall.Kill(pid, 0) == nil {
			list[e.Name()] = pid
		}
	}
	return list, nil
}

// TestPodsOfAnAgentLiveWithoutTheServer kills server and agent, and starts the agent alone:
// its pod goes on, is started anew when it ends, and serves under the address of its service.
func TestPodsOfAnAgentLiveWithoutTheServer(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.newAgent(t)
	ns := c.namespace(t)
	for _, err := range []error{
		second(c.client.CoreV1().ConfigMaps(ns).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Data: map[string]string{"k": "v"}}, metav1.CreateOptions{})),
		second(c.client.CoreV1().Secrets(ns).Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Data: map[string][]byte{"k": []byte("v")}}, metav1.CreateOptions{})),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	service, err := c.client.CoreV1().Services(ns).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 8080}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	made := c.create(t, ns, `
metadata: {name: web, labels: {app: web}}
spec:
  nodeName: agent
  containers:
  - name: web
    image: kemudi.local/web:1
    readinessProbe: {httpGet: {path: /readyz, port: 8080}, periodSeconds: 1}
    env: [{name: FROM, valueFrom: {secretKeyRef: {name: s, key: k}}}]
    volumeMounts: [{name: v, mountPath: /v}]
  volumes: [{name: v, configMap: {name: c}}]
`)
	pod := c.await(t, ns, "web", isReady)
	id := strings.TrimPrefix(pod.Status.ContainerStatuses[0].ContainerID, "containerd://")
	url := "http://" + service.Spec.ClusterIP + ":8080/"
	wait.Until(t, func() error { return second(get(a.host, url)) })
	if o := a.status(t); o.code != 0 || !strings.Contains(o.stdout, "node     agent: ready") || !strings.Contains(o.stdout, "server   https://"+machineIP+":6443: ready") || !strings.Contains(o.stdout, "pods     1") {
		t.Errorf("status on the agent's machine: got %s", o.all())
	}
	before, err := a.tasks()
	if err != nil || before[id] == 0 {
		t.Fatalf("got tasks %v, %v, want one of %s", before, err, id)
	}
	slices, err := c.client.DiscoveryV1().EndpointSlices(ns).List(t.Context(), metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=web"})
	if err != nil || len(slices.Items) != 1 {
		t.Fatalf("got slices %v, %v, want one", slices, err)
	}
	ready := slices.Items[0].ResourceVersion // an earlier one has the pod that is not ready
	for kind, text := range map[string]string{"pods": string(made.UID), "endpointslices.discovery.k8s.io": ready, "nodes": agentName, "services": string(service.UID), "secrets": "s", "configmaps": "c", "namespaces": ns} {
		wait.Until(t, func() error { return a.knows(kind, text) })
	}

	c.kill(syscall.SIGKILL)
	a.kill(syscall.SIGKILL)
	a.start(t)
	other := func() (string, int) {
		tasks, _ := a.tasks()
		for task, pid := range tasks {
			if before[task] == 0 {
				return task, pid
			}
		}
		return "", 0
	}
	wait.Until(t, func() error { return second(a.logHas("what was known earlier counts")) })
	if o := a.status(t); o.code != 3 || !strings.Contains(o.stdout, "no server is ready: pods go on") {
		t.Errorf("status on the agent's machine without a server: got %s", o.all())
	}
	if err := syscall.Kill(before[id], syscall.SIGKILL); err != nil {
		t.Fatalf("the container did not go on: %v", err)
	}
	wait.Until(t, func() error {
		if task, _ := other(); task == "" {
			return errors.New("the container that has ended is not started anew")
		}
		return second(get(a.host, url))
	})
	again, _ := other()

	c.serve(t)
	c.await(t, ns, "web", func(p *corev1.Pod) error {
		cs := p.Status.ContainerStatuses[0]
		if p.UID != made.UID || cs.RestartCount != 1 || !strings.HasSuffix(cs.ContainerID, again) {
			return fmt.Errorf("it has UID %s, %d restarts and container %s, want %s, 1 and %s", p.UID, cs.RestartCount, cs.ContainerID, made.UID, again)
		}
		return isReady(p)
	})
}

// knows reports whether what the agent keeps of a resource has a text.
func (a *agent) knows(kind, text string) error {
	files, err := filepath.Glob(filepath.Join(a.DataDir, "known", kind+"-*"))
	for _, file := range files {
		if data, err := os.ReadFile(file); err == nil && bytes.Contains(data, []byte(text)) {
			return nil
		}
	}
	return fmt.Errorf("the agent does not know %s of %s: %w", text, kind, errors.Join(err, errors.New("it is in none of the files")))
}

// status asks how the machine is, as a person there does.
func (a *agent) status(t *testing.T) output {
	t.Helper()
	// A proxy for the world outside must not be asked for the servers.
	return a.run(t.Context(), nil, "env", "HTTPS_PROXY=http://127.0.0.1:1", a.bin, "status", "--data-dir", a.DataDir, "--run-dir", a.RunDir)
}

// second is the error of what returns something else as well.
func second[T any](_ T, err error) error { return err }

// logHas reports whether the agent's log has a text.
func (a *agent) logHas(text string) (struct{}, error) {
	log, err := os.ReadFile(a.logFile())
	if err == nil && !bytes.Contains(log, []byte(text)) {
		err = fmt.Errorf("the agent's log has no %q", text)
	}
	return struct{}{}, err
}
