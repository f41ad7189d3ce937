package e2e

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/test/wait"
)

// anIngress has no class, as those of newcomers.
const anIngress = `
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web}
spec: {rules: [{http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}]}
`

// TestIngressesAreServed has an Ingress serve the example to clients outside: from the moment at which
// it is there, while the server restarts, and until it is deleted.
func TestIngressesAreServed(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	k := c.kubectl()
	url := "http://" + machineIP + "/"
	if _, err := get(c.neighbour, url); err == nil {
		t.Error("port 80 answers although there is no Ingress")
	}
	k.apply(t, string(must(os.ReadFile("../../examples/web.yaml"))(t)))
	k.rolledOut(t, "web")
	k.apply(t, anIngress)
	wait.Until(t, func() error { _, err := get(c.neighbour, url); return err })
	trace.Proves(t, "ING-001", "ING-005", "ING-018", "ING-032", "INGC-007")
	k.do(t, "wait", "ingress/web", "--for=jsonpath={.status.loadBalancer.ingress[0].ip}="+machineIP, patient)
	trace.Proves(t, "ING-025", "ING-029")
	if got := k.do(t, "get", "ingress", "web", "--no-headers"); strings.Join(strings.Fields(got)[:5], " ") != "web kemudi * "+machineIP+" 80" {
		t.Errorf("got %q, want the class and the address", got)
	}
	outside := startLoad(t, c.neighbour, url)
	c.kill(syscall.SIGTERM)
	if _, err := get(c.neighbour, url); err != nil {
		t.Errorf("while the server does not run: %v", err)
	}
	c.serve(t)
	c.connect(t)
	outside.end(t, "1")
	k.do(t, "delete", "ingress", "web")
	wait.Until(t, func() error {
		resp, err := httpClient(c.neighbour).Get(url)
		if err == nil {
			resp.Body.Close()
			return fmt.Errorf("port 80 still answers %s", http.StatusText(resp.StatusCode))
		}
		return nil
	})
}
