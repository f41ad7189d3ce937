package e2e

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/test/wait"
)

// aBudget is that of the example: two of its three pods serve, whatever happens to the node.
const aBudget = `
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec: {minAvailable: 2, selector: {matchLabels: {app: web}}}
`

// TestDrainUnderLoad drains the node of the example, which has a budget and a hook that
// gives proxies time, while clients send requests: none of them fails. There is one
// node, so it is uncordoned at once, and takes the pods that come for those that go.
func TestDrainUnderLoad(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	k := c.kubectl()
	manifest := string(must(os.ReadFile("../../examples/web.yaml"))(t))
	const container = "      - name: web\n"
	if !strings.Contains(manifest, container) {
		t.Fatal("the example has another container")
	}
	k.apply(t, strings.Replace(manifest, container, container+"        lifecycle: {preStop: {sleep: {seconds: 2}}}\n", 1))
	k.apply(t, aBudget)
	k.rolledOut(t, "web")
	url := "http://" + machineIP + ":30080/"
	wait.Until(t, func() error { _, err := get(c.neighbour, url); return err })
	clusterIP := k.do(t, "get", "service", "web", "-o", "jsonpath={.spec.clusterIP}")
	before := map[string]bool{}
	for _, pod := range c.pods(t, "default", "app=web") {
		before[string(pod.UID)] = true
	}
	nodes, err := c.client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(nodes.Items) != 1 {
		t.Fatalf("nodes: got %d, %v, want one", len(nodes.Items), err)
	}
	node := nodes.Items[0].Name
	outside, inside := startLoad(t, c.neighbour, url), startLoad(t, c.host, "http://"+clusterIP+"/")
	var drained output
	var wg sync.WaitGroup
	wg.Go(func() { drained = k.try(t, "", "drain", node, "--ignore-daemonsets", "--delete-emptydir-data") })
	wait.Until(t, func() error {
		n, err := c.client.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
		if err == nil && !n.Spec.Unschedulable {
			err = fmt.Errorf("node %s is not cordoned yet", node)
		}
		return err
	})
	k.do(t, "uncordon", node)
	wg.Wait()
	if drained.code != 0 || !strings.Contains(drained.stdout, "node/"+node+" drained") {
		t.Errorf("drain: got exit code %d\n%s", drained.code, drained.all())
	}
	if want := "Cannot evict pod as it would violate the pod's disruption budget."; !strings.Contains(drained.stderr, want) {
		t.Errorf("drain: got\n%s\nwant once: %s", drained.stderr, want)
	}
	k.rolledOut(t, "web")
	for _, pod := range c.pods(t, "default", "app=web") {
		if before[string(pod.UID)] && pod.DeletionTimestamp == nil {
			t.Errorf("pod %s was there before the drain, and is %s", pod.Name, pod.Status.Phase)
		}
	}
	trace.Proves(t, "DIS-030")
	outside.end(t, "1")
	inside.end(t, "1")
}
