package e2e

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/test/wait"
)

// lingerless takes no connection any more as soon as it is told to end: whoever connects to it
// afterwards is refused. What it is answering it answers.
const lingerless = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 4
  selector: {matchLabels: {app: web}}
  strategy: {rollingUpdate: {maxUnavailable: 0, maxSurge: 2}}
  template:
    metadata: {labels: {app: web}}
    spec:
      topologySpreadConstraints: [{maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}}]
      containers:
      - name: web
        image: "kemudi.local/web:1"
        args: [--drain=0s]
        readinessProbe: {httpGet: {path: /readyz, port: 8080}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: NodePort
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080, nodePort: 30080}]
`

// TestRollOutsOfAServerThatDoesNotLinger rolls a deployment out on two nodes while clients of
// both connect by the cluster IP, and from outside by the node ports and the Ingress of both: none is refused.
// Then one node falls silent: the other's pods wait for it once, and say so.
func TestRollOutsOfAServerThatDoesNotLinger(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.newAgent(t)
	k := c.kubectl()
	k.apply(t, lingerless)
	k.apply(t, anIngress)
	k.rolledOut(t, "web")
	seen := map[string]bool{}
	for line := range strings.Lines(k.do(t, "get", "pods", "-l", "app=web", "-o", "wide", "--no-headers")) {
		fields := strings.Fields(line)
		trace.Proves(t, "CONN-012/pods")
		if len(fields) < 7 || !strings.HasPrefix(fields[5], "10.244.") {
			t.Errorf("got %q, want a pod with an address of the pod network", line)
			continue
		}
		seen[fields[6]] = true
	}
	trace.Proves(t, "CONN-012/pods")
	if len(seen) != 2 {
		t.Errorf("pods run on %v, want both nodes", seen)
	}
	clusterIP := "http://" + k.do(t, "get", "service", "web", "-o", "jsonpath={.spec.clusterIP}") + "/"
	loads := map[string]*load{}
	for name, from := range map[string]struct {
		*machine
		url string
	}{
		"the server's cluster IP": {c.machine, clusterIP}, "the agent's cluster IP": {a.machine, clusterIP},
	} {
		wait.Until(t, func() error { return second(get(from.host, from.url)) })
		loads[name] = startLoadOf(t, from.url, httpClient(from.host))
	}
	for name, at := range map[string]string{
		"the server's node port": machineIP + ":30080", "the agent's node port": agentIP + ":30080", "the server's Ingress": machineIP, "the agent's Ingress": agentIP,
	} {
		url := "http://" + at + "/"
		wait.Until(t, func() error { return second(get(c.neighbour, url)) })
		loads[name] = startLoadOf(t, url, httpClient(c.neighbour))
	}
	k.apply(t, aPrivateIngress)
	asksForPasswords(t, c.neighbour, machineIP, agentIP)
	trace.Proves(t, "SVC-030")
	for _, ip := range []string{machineIP, agentIP} {
		if _, err := get(c.neighbour, "http://"+ip+":10256/healthz"); err != nil {
			t.Errorf("the service proxy of node %s: %v", ip, err)
		}
	}
	for round := range rounds(t) + 1 {
		k.do(t, "set", "env", "deployment/web", fmt.Sprintf("ROUND=%d", round))
		k.rolledOut(t, "web")
		// Those of before may still wait for the other node: they are not to meet it when it is silent.
		wait.Until(t, func() error { return noneEnds(c.pods(t, "default", "app=web")) })
		if n := undrained(t, c); len(n) > 0 {
			t.Errorf("round %d: events say: %s", round, strings.Join(n, "\n"))
		}
	}
	for name, l := range loads {
		t.Log(name)
		l.end(t, "1")
	}

	var on []corev1.Pod // those of the server's node that serve
	for _, pod := range c.pods(t, "default", "app=web") {
		if pod.Spec.NodeName != agentName {
			on = append(on, pod)
		}
	}
	if len(on) == 0 {
		t.Fatal("no pod runs on the server's node")
	}
	if err := a.proc.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = a.proc.Process.Signal(syscall.SIGCONT) }() // it ends before the agent is told to
	k.do(t, "delete", "pod", on[0].Name, "--wait=false")
	want := "default/" + on[0].Name + ": Stopping, though Services may still send it connections: not confirmed by node agent"
	wait.Until(t, func() error {
		if got := undrained(t, c); len(got) != 1 || got[0] != want {
			return fmt.Errorf("events: got %q, want %q", got, want)
		}
		if _, err := c.client.CoreV1().Pods("default").Get(t.Context(), on[0].Name, metav1.GetOptions{}); err == nil {
			return errors.New("the pod has not gone")
		}
		return nil
	})
}

// noneEnds is an error while there is a pod that was told to end, or will be.
func noneEnds(pods []corev1.Pod) error {
	for i := range pods {
		if p := &pods[i]; p.DeletionTimestamp != nil {
			return fmt.Errorf("pod %s of node %s has not gone", p.Name, p.Spec.NodeName)
		}
	}
	return nil
}

// undrained are the events of pods that were told to end too early, as far as is known.
func undrained(t *testing.T, c *cluster) (said []string) {
	t.Helper()
	list, err := c.client.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "reason=NotDrained"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		e := &list.Items[i]
		said = append(said, e.InvolvedObject.Namespace+"/"+e.InvolvedObject.Name+": "+e.Message)
	}
	return said
}
