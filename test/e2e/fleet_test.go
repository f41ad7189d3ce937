package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/fleet"
	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/test/wait"
)

const webOnEachNode = `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      tolerations: [{key: node-role.kubernetes.io/control-plane}]
      containers:
      - {name: c, image: "kemudi.local/agnhost:1", args: [netexec], ports: [{containerPort: 8080}], readinessProbe: {httpGet: {path: /healthz, port: 8080}}}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080}]
`

const userPods = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: users}
spec:
  replicas: 4
  selector: {matchLabels: {app: users}}
  template:
    metadata: {labels: {app: users}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: c, image: "kemudi.local/agnhost:1", args: [pause]}]
`

// TestFurtherNodesOnOneMachine brings up three nodes, has pods on each reach those on the
// others, and stops and starts all of it.
func TestFurtherNodesOnOneMachine(t *testing.T) {
	t.Parallel()
	enter(t, 3)
	m := makeMachine(t)
	dirs := []string{"--data-dir", m.DataDir, "--run-dir", m.RunDir}
	command := func(args ...string) string {
		t.Helper()
		o := m.run(t.Context(), nil, append(append([]string{m.bin, args[0]}, dirs...), args[1:]...)...)
		if o.code != 0 {
			t.Fatalf("%v: exit code %d\n%s", args, o.code, o.all())
		}
		return o.stdout
	}
	agnhost := m.images[slices.IndexFunc(m.images, func(file string) bool { return filepath.Base(file) == "agnhost-1.tar" })]
	up := []string{"up", "--kubeconfig", "", "--agents", "2", "--import", agnhost, "--", "--pod-logs-dir", m.LogsDir,
		"--register-with-taints", "node-role.kubernetes.io/control-plane:NoSchedule", "--max-pods", "90", "--", "--node-labels", "example.com/for=users"}
	said := command(up...)
	for _, want := range []string{"node is ready: agent-1\n", "node is ready: agent-2\n", "imported kemudi.local/agnhost:1\n"} {
		if !strings.Contains(said, want) {
			t.Errorf("up: got\n%s\nwant it to contain %q", said, want)
		}
	}
	c := &cluster{machine: m}
	c.connect(t)
	k := c.kubectl()
	nodes := strings.Fields(k.do(t, "get", "nodes", "-o", "jsonpath={.items[*].metadata.name}"))
	if len(nodes) != 3 || nodes[0] != "agent-1" || nodes[1] != "agent-2" {
		t.Fatalf("got nodes %q, want those of the server and two more", nodes)
	}
	host, err := os.Hostname()
	trace.Proves(t, "NODE-005/kernel")
	if got := k.do(t, "get", "node", nodes[2], "-o", `jsonpath={.status.addresses[?(@.type=="Hostname")].address}`); err != nil || got != strings.ToLower(host) {
		t.Errorf("name of the first machine: got %q, want what its kernel says, %q, %v", got, host, err)
	}
	trace.Proves(t, "C-445")
	// What is said of servers is so on agents as far as it is not what runs there.
	if got := k.do(t, "get", "nodes", "-l", "example.com/for=users", "-o", "jsonpath={.items[*].metadata.name}"); got != "agent-1 agent-2" {
		t.Errorf("labels of agents: got them on %q", got)
	}
	if got := k.do(t, "get", "nodes", "-o", "jsonpath={.items[*].status.capacity.pods}"); got != "90 90 90" {
		t.Errorf("got capacities for %q pods, want 90 on each node", got)
	}

	k.apply(t, webOnEachNode+"---"+userPods)
	k.do(t, "rollout", "status", "daemonset/web", patient)
	pods := c.pods(t, "default", "app=web")
	c.wantEachOther(t, pods, 3)
	trace.Proves(t, "CNO-002", "COMP-024", "COMP-028", "NODE-001", "WHAT-022") // by their agents and proxies, and by names
	k.do(t, "rollout", "status", "deployment/users", patient)
	users := c.pods(t, "default", "app=users")
	if len(users) != 4 {
		t.Errorf("got %d pods of users, want 4", len(users))
	}
	for i := range users {
		if on := users[i].Spec.NodeName; on != "agent-1" && on != "agent-2" {
			t.Errorf("pod %s of a user runs on %s, beside the control plane", users[i].Name, on)
		}
	}
	trace.Proves(t, "COMP-004")
	for i := range pods {
		// By the agents of the nodes, which are reached by their addresses or by their tunnels.
		if got := k.do(t, "exec", pods[i].Name, "--", "/agnhost", "help"); !strings.Contains(got, "netexec") {
			t.Errorf("exec on %s: got %q", pods[i].Spec.NodeName, got)
		}
		k.wants(t, []string{"Started HTTP server on port 8080"}, "logs", pods[i].Name)
		trace.Proves(t, "NODE-002", "PODO-004")
		if got := k.do(t, "get", "node", pods[i].Spec.NodeName, "-o", "jsonpath={.status.nodeInfo.containerRuntimeVersion}"); !strings.HasPrefix(got, "containerd://") {
			t.Errorf("container runtime of %s: got %q", pods[i].Spec.NodeName, got)
		}
		metrics := k.do(t, "get", "--raw", "/api/v1/nodes/"+pods[i].Spec.NodeName+"/proxy/metrics")
		for _, want := range []string{"\nkubelet_running_pods ", "\nkubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family=\"IPv4\"} 1.", "\nprocess_resident_memory_bytes "} {
			if !strings.Contains(metrics, want) {
				t.Errorf("metrics of %s: got\n%s\nwant them to contain %q", pods[i].Spec.NodeName, metrics, want)
			}
		}
	}

	before := c.containers(t, "default", "app=web")
	if got := command("down"); !strings.Contains(got, "stopped agent-1\nstopped agent-2\nstopped the server") {
		t.Errorf("down: got %q", got)
	}
	command("up", "--kubeconfig", "", "--", "--pod-logs-dir", m.LogsDir)
	var s struct {
		Ready    bool
		Machines []fleet.State
	}
	wait.Until(t, func() error {
		if err := json.Unmarshal([]byte(m.run(t.Context(), nil, append([]string{m.bin, "status", "-o", "json"}, dirs...)...).stdout), &s); err != nil {
			return err
		}
		if !s.Ready || len(s.Machines) != 2 || s.Machines[0].Process == 0 || s.Machines[1].Process == 0 {
			return fmt.Errorf("status: got %+v", s)
		}
		return nil
	})
	c.connect(t)
	k.do(t, "rollout", "status", "daemonset/web", patient)
	wantSame(t, before, c.containers(t, "default", "app=web"))
	c.wantEachOther(t, c.pods(t, "default", "app=web"), 3)
}

// wantEachOther has each pod of so many ask each of them, by its address and by the service.
func (c *cluster) wantEachOther(t *testing.T, pods []corev1.Pod, count int) {
	t.Helper()
	if len(pods) != count {
		t.Fatalf("got %d pods, want one on each of %d nodes", len(pods), count)
	}
	for i := range pods {
		ask := func(what string, target, want string) {
			t.Helper()
			url := "http://" + pods[i].Status.PodIP + ":8080/dial?request=" + what + "&protocol=http&tries=1&" + target
			wait.Until(t, func() error { // a node hears of services and of other nodes in its own time
				got, err := get(c.host, url)
				if err != nil || !strings.Contains(got, want) {
					return fmt.Errorf("from %s: %s: got %q, %v, want %q", pods[i].Spec.NodeName, target, got, err, want)
				}
				return nil
			})
		}
		for j := range pods {
			ask("hostname", "host="+pods[j].Status.PodIP+"&port=8080", pods[j].Name)
			// Who asks is seen as who he is, on the other nodes too.
			ask("clientip", "host="+pods[j].Status.PodIP+"&port=8080", pods[i].Status.PodIP+":")
		}
		ask("hostname", "host=web.default.svc.cluster.local&port=80", "web-")
	}
}
