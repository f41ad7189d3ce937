package e2e

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/test/wait"
)

func testDocumentDeployment(t *testing.T, c *cluster) {
	k := c.kubectls()[0].in(c.namespace(t))
	manifest := string(must(os.ReadFile("../../docs/requirements/manifests/1.4.1-nginx-deployment.yaml"))(t))
	if got, want := k.apply(t, manifest), "deployment.apps/nginx-deployment created\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	k.rolledOut(t, "nginx-deployment")
	k.do(t, "expose", "deployment", "nginx-deployment", "--type=NodePort", "--name=nginx")
	trace.Proves(t, "CON-013", "WHAT-010")
	k.reaches(t, 2, "1.7.9")
	for _, n := range []int{5, 1, 3} {
		k.do(t, "scale", "deployment/nginx-deployment", fmt.Sprintf("--replicas=%d", n))
		k.rolledOut(t, "nginx-deployment")
		trace.Proves(t, "DEP-014", "DEP-063")
		wait.Until(t, func() error {
			if got := k.do(t, "get", "deployment", "nginx-deployment", "-o", "jsonpath={.status.replicas} {.status.updatedReplicas} {.status.availableReplicas}"); got != fmt.Sprint(n, n, n) {
				return fmt.Errorf("replicas, those updated and those available: got %s, want %d each", got, n)
			}
			if pods := c.pods(t, k.namespace, "app=nginx"); len(pods) != n {
				return fmt.Errorf("got %d pods, want %d", len(pods), n)
			}
			return nil
		})
		k.reaches(t, n, "1.7.9")
	}
	before := k.do(t, "get", "replicasets", "-o", "name")
	trace.Proves(t, "DEP-024", "IMG-002/short")
	if got, want := k.do(t, "set", "image", "deployment.v1.apps/nginx-deployment", "nginx=nginx:1.9.1"), "deployment.apps/nginx-deployment image updated\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	k.rolledOut(t, "nginx-deployment")
	k.do(t, "wait", "--for=delete", "pod", "-l", "app=nginx,pod-template-hash="+hashOf(before), patient)
	k.reaches(t, 3, "1.9.1")
	revision := func() string {
		return k.do(t, "get", "deployment", "nginx-deployment", "-o", `jsonpath={.metadata.annotations.deployment\.kubernetes\.io/revision}`)
	}
	trace.Proves(t, "DEP-035")
	if got := revision(); got != "2" {
		t.Errorf("revision after an update: got %q, want 2", got)
	}
	k.wants(t, []string{"REVISION", "1 ", "2 "}, "rollout", "history", "deployment.v1.apps/nginx-deployment")
	k.wants(t, []string{"nginx:1.9.1"}, "rollout", "history", "deployment/nginx-deployment", "--revision=2")
	k.wants(t, []string{"deployment.apps/nginx-deployment rolled back"}, "rollout", "undo", "deployment/nginx-deployment")
	k.rolledOut(t, "nginx-deployment")
	trace.Proves(t, "DEP-059")
	if got := revision(); got != "3" {
		t.Errorf("revision after undo: got %q, want 3", got)
	}
	trace.Proves(t, "DEP-060")
	old := strings.TrimPrefix(strings.TrimSpace(before), "replicaset.apps/")
	if got := k.do(t, "get", "replicasets", "-o", "jsonpath={range .items[*]}{.metadata.name}={.spec.replicas} {end}"); len(strings.Fields(got)) != 2 || !strings.Contains(got, old+"=3 ") || !strings.Contains(got, "=0 ") {
		t.Errorf("replica sets after undo: got %q, want 3 of %s and 0 of the other", got, old)
	}
	k.do(t, "delete", "deployment/nginx-deployment", "service/nginx")
	c.wantNothing(t, k.namespace)
}

// hashOf is the pod template hash that ends the name of a replica set.
func hashOf(name string) string {
	name = strings.TrimSpace(name)
	return name[strings.LastIndexByte(name, '-')+1:]
}

// rolledOut waits for a rollout as a person would.
func (k kubectl) rolledOut(t *testing.T, deployment string) {
	t.Helper()
	k.wants(t, []string{fmt.Sprintf("deployment %q successfully rolled out\n", deployment)}, "rollout", "status", "deployment/"+deployment, patient)
}

// reaches expects n pods of the document's deployment behind its service, each
// reached by its own address from the host and from a pod, and all of them by the
// cluster IP, the node port and the DNS name.
func (k kubectl) reaches(t *testing.T, n int, want string) {
	t.Helper()
	var running []corev1.Pod
	for _, pod := range k.pods(t, k.namespace, "app=nginx") {
		if pod.DeletionTimestamp == nil {
			running = append(running, pod)
		}
	}
	if len(running) != n {
		t.Errorf("got %d running pods, want %d", len(running), n)
	}
	trace.Proves(t, "CONN-003", "CONN-006", "POD-006", "PODO-008")
	for _, pod := range running {
		// Without a readiness probe a pod is ready as soon as its process exists, a moment before it listens.
		wait.Until(t, func() error {
			got, err := get(k.host, "http://"+pod.Status.PodIP+"/")
			if err == nil && !strings.HasPrefix(got, pod.Name+" ") {
				err = fmt.Errorf("pod from the host: got %q, want the name of %s", got, pod.Name)
			}
			return err
		})
	}
	service, err := k.client.CoreV1().Services(k.namespace).Get(t.Context(), "nginx", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	nodePort := fmt.Sprintf("http://%s:%d/", machineIP, service.Spec.Ports[0].NodePort)
	trace.Proves(t, "CONN-022", "SVC-095", "SVC-107")
	for url, from := range map[string]func(string) (string, error){
		"http://" + service.Spec.ClusterIP + "/": func(url string) (string, error) { return get(k.host, url) },
		nodePort:                                 func(url string) (string, error) { return get(k.neighbour, url) },
		nodePort + "?from-the-host":              func(url string) (string, error) { return get(k.host, url) },
	} {
		wait.Until(t, func() error {
			got, err := from(url)
			if err == nil && !strings.HasSuffix(got, " "+want+"\n") {
				err = fmt.Errorf("%s: got %q, want version %s", url, got, want)
			}
			return err
		})
	}
	trace.Proves(t, "CONN-022") // an address of nobody
	k.host.Must(func() error {
		addresses, err := net.InterfaceAddrs()
		if strings.Contains(fmt.Sprint(addresses), service.Spec.ClusterIP+"/") {
			t.Errorf("the machine has the service's address %s: %v", service.Spec.ClusterIP, addresses)
		}
		return err
	})
	trace.Proves(t, "CONN-006", "POD-017")
	urls := []string{"http://nginx", "http://nginx." + k.namespace, "http://nginx." + k.namespace + ".svc.cluster.local", "http://" + running[0].Status.PodIP, nodePort}
	wait.Until(t, func() error {
		const fetch = `for url; do echo "$url $(wget -q -O - "$url" 2>&1)"; done`
		got := k.do(t, append([]string{"exec", running[len(running)-1].Name, "--", "sh", "-c", fetch, "sh"}, urls...)...)
		for i, line := range strings.Split(strings.TrimSpace(got), "\n") {
			if i >= len(urls) || !strings.HasPrefix(line, urls[i]+" ") || !strings.HasSuffix(line, " "+want) {
				return fmt.Errorf("%v from a pod: got\n%s\nwant version %s each time", urls, got, want)
			}
		}
		return nil
	})
}

// wantNothing waits until no object of a workload is left in a namespace.
func (c *cluster) wantNothing(t *testing.T, namespace string) {
	t.Helper()
	wait.Until(t, func() error {
		k := c.kubectl().in(namespace)
		got := k.do(t, "get", "deployments,replicasets,pods,services,endpointslices", "-o", "name")
		endpoints := k.try(t, "", "get", "endpoints", "-o", "name") // kubectl warns of the kind
		if got != "" || endpoints.stdout != "" || endpoints.code != 0 {
			return fmt.Errorf("left: %s%s", got, endpoints.all())
		}
		return nil
	})
}

// testRolloutUnderLoad replaces every pod of the example, twice, without a failed request.
func testRolloutUnderLoad(t *testing.T, c *cluster) {
	trace.Proves(t, "DEP-029", "DEP-031", "PLC-030", "PLC-035", "PLC-038")
	k := c.kubectl().in(c.namespace(t))
	manifest := string(must(os.ReadFile("../../examples/web.yaml"))(t))
	k.apply(t, strings.Replace(manifest, "    nodePort: 30080\n", "", 1)) // another test may have that port
	k.rolledOut(t, "web")
	url := "http://" + machineIP + ":" + k.do(t, "get", "service", "web", "-o", "jsonpath={.spec.ports[0].nodePort}") + "/"
	wait.Until(t, func() error { _, err := get(c.neighbour, url); return err })
	clusterIP := k.do(t, "get", "service", "web", "-o", "jsonpath={.spec.clusterIP}")
	outside, inside := startLoad(t, c.neighbour, url), startLoad(t, c.host, "http://"+clusterIP+"/")
	k.do(t, "set", "image", "deployment/web", "web=kemudi.local/web:2")
	k.rolledOut(t, "web")
	k.do(t, "scale", "deployment/web", "--replicas=5")
	k.rolledOut(t, "web")
	k.do(t, "rollout", "undo", "deployment/web")
	k.rolledOut(t, "web")
	k.do(t, "scale", "deployment/web", "--replicas=1")
	wait.Until(t, func() error {
		if pods := c.pods(t, k.namespace, ""); len(pods) != 1 {
			return fmt.Errorf("got %d pods, want 1", len(pods))
		}
		return nil
	})
	outside.end(t, "1", "2")
	inside.end(t, "1", "2")
	k.do(t, "delete", "deployment/web", "service/web")
	c.wantNothing(t, k.namespace)
}
